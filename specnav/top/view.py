# SPDX-License-Identifier: Apache-2.0
"""Figures as text: a block about the verifier, and a row for each client."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from specnav.terminal import plain_table
from specnav.top.figures import ClientFigures, Quantile, VerifierFigures

MOST_CLIENTS = 20
"""Rows; the busiest clients come first."""
NOTHING = "–"
TITLES = ("client", "sessions", "tok/s", "accepted", "msg/s", "up/s", "down/s", "KV", "refused")


def view_of(headline: str, figures: VerifierFigures | None) -> RenderableType:
    """All of it. headline: where, when, and whether it answers."""
    if figures is None:
        return Text(headline)
    return Group(Text(headline, style="bold"), Text(), _whole(figures), Text(), _clients(figures.clients))


def _whole(one: VerifierFigures) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(4):
        table.add_column(no_wrap=True)
    full = "" if not one.kv_budget_bytes else f" ({one.kv_bytes / one.kv_budget_bytes:.0%})"
    rows = (
        ("tokens/s", f"{one.tokens_per_s:.1f}", "verify p50/p95", pair(one.verify)),
        ("forwards/s", f"{one.forwards_per_s:.1f}", "queue p50/p95", pair(one.queue)),
        ("batch", number(one.batch), "hints", hints(one)),
        ("rows", number(one.rows), "KV", f"{size(one.kv_bytes)} of {size(one.kv_budget_bytes)}{full}"),
        ("busy", f"{one.busy:.0%}", "largest session", size(one.kv_session_max_bytes)),
        ("accepted", percent(one.acceptance), "evicted", evicted(one)),
        ("sessions", str(one.sessions), "refused", with_all(one.refusals, one.refusals_in_all)),
        ("connections", str(one.connections), "hand-shakes refused", str(one.handshakes_refused)),
        ("waiting", size(one.waiting_bytes), "failed forwards", str(one.failed)),
    )
    for row in rows:
        table.add_row(*(Text(cell, style="" if at % 2 else "dim") for at, cell in enumerate(row)))
    return table


def _clients(clients: tuple[ClientFigures, ...]) -> RenderableType:
    table = plain_table(TITLES, words=("client",))
    for one in clients[:MOST_CLIENTS]:
        table.add_row(
            Text(printable(one.name)),
            str(one.sessions),
            f"{one.tokens_per_s:.1f}",
            percent(one.acceptance),
            f"{one.messages_per_s:.1f}",
            size(one.up_bytes_per_s),
            size(one.down_bytes_per_s),
            size(one.kv_bytes),
            with_all(one.refusals, one.refusals_in_all),
        )
    more = len(clients) - MOST_CLIENTS
    return Group(table, Text(f"and {more} more")) if more > 0 else table


def printable(name: str) -> str:
    """A name from elsewhere, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:64]


def number(value: float | None) -> str:
    """A mean, or that there is none."""
    return NOTHING if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    """A share, or that there is none."""
    return NOTHING if value is None else f"{value:.0%}"


def size(value: float) -> str:
    """Bytes in the unit that fits."""
    for unit in ("B", "kB", "MB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def pair(quantiles: tuple[Quantile, Quantile]) -> str:
    """Median and 95th percentile, ms."""
    return " / ".join(map(milliseconds, quantiles)) + ("" if quantiles[0].seconds is None else " ms")


def milliseconds(one: Quantile) -> str:
    """Without the unit."""
    if one.seconds is None:
        return NOTHING
    return f"{'>' if one.beyond else ''}{one.seconds * 1e3:.3g}"


def hints(one: VerifierFigures) -> str:
    """How long they took of a forward, and how many left."""
    return NOTHING if one.hint_s is None else f"{one.hint_s * 1e3:.2f} ms a forward, {one.hints_per_s:.0f}/s"


def with_all(now: int, in_all: int) -> str:
    """In this interval, and since the verifier began."""
    return f"{now} ({in_all} in all)"


def evicted(one: VerifierFigures) -> str:
    """Caches that were given back, and made anew."""
    return f"{with_all(one.evictions, one.evictions_in_all)}, {one.restored} restored"
