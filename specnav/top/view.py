# SPDX-License-Identifier: Apache-2.0
"""Formats figures as text: a block about the verifier, and a row for each client."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from specnav.terminal import plain_table
from specnav.top.scrape import Interval, Quantile

MOST_CLIENTS = 20
"""Most client rows; the busiest clients come first."""
NOTHING = "–"
TITLES = ("client", "sessions", "tok/s", "accepted", "msg/s", "up/s", "down/s", "KV", "refused")


def view_of(headline: str, interval: Interval | None) -> RenderableType:
    """Draw the whole view.

    Args:
        headline: Address, time, and whether the verifier answers.
        interval: The latest interval; None before there is one.

    Returns:
        What to print.
    """
    if interval is None:
        return Text(headline)
    return Group(Text(headline, style="bold"), Text(), _whole(interval), Text(), _clients(interval))


def _whole(at: Interval) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(4):
        table.add_column(no_wrap=True)
    total = at.now.total
    used, budget = total("kv_admitted_bytes"), total("kv_budget_bytes")
    full = f" ({used / budget:.0%})" if budget else ""
    batch, in_rows = (at.share(name, "forwards_total") for name in ("forward_sessions_total", "forward_rows_total"))
    busy = min(1.0, at.rate("forward_seconds_total"))
    tokens, forwards = at.rate("verified_tokens_total"), at.rate("forwards_total")
    refused, failed = at.grown("handshakes_refused_total"), at.grown("failed_forwards_total")
    evicted = f"{with_all(at, 'kv_evictions_total')}, {at.grown('kv_restored_total'):.0f} restored"
    rows = (
        ("tokens/s", f"{tokens:.1f}", "verify p50/p95", pair(at.quantiles("verify_seconds"))),
        ("forwards/s", f"{forwards:.1f}", "queue p50/p95", pair(at.quantiles("queue_seconds"))),
        ("batch", number(batch), "hints", hints(at)),
        ("rows", number(in_rows), "KV", f"{size(used)} of {size(budget)}{full}"),
        ("busy", f"{busy:.0%}", "largest session", size(total("kv_session_max_bytes"))),
        ("accepted", accepted(at), "evicted", evicted),
        ("sessions", f"{total('sessions'):.0f}", "refused", with_all(at, "refusals_total")),
        ("connections", f"{total('clients'):.0f}", "hand-shakes refused", f"{refused:.0f}"),
        ("waiting", size(total("waiting_bytes")), "failed forwards", f"{failed:.0f}"),
    )
    for row in rows:
        table.add_row(*(Text(cell, style="" if place % 2 else "dim") for place, cell in enumerate(row)))
    return table


def _clients(at: Interval) -> RenderableType:
    table = plain_table(TITLES, words=("client",))
    clients = at.clients
    for name in clients[:MOST_CLIENTS]:
        table.add_row(
            Text(printable(name)),
            f"{at.now.total('client_sessions', client=name):.0f}",
            f"{at.rate('verified_tokens_total', client=name):.1f}",
            accepted(at, client=name),
            f"{at.rate('messages_total', client=name):.1f}",
            size(at.rate("message_bytes_total", client=name, direction="up")),
            size(at.rate("message_bytes_total", client=name, direction="down")),
            size(at.now.total("client_kv_bytes", client=name)),
            with_all(at, "refusals_total", client=name),
        )
    more = len(clients) - MOST_CLIENTS
    return Group(table, Text(f"and {more} more")) if more > 0 else table


def printable(name: str) -> str:
    """Return a name received from elsewhere without terminal control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:64]


def number(value: float | None) -> str:
    """Format a mean; a dash without one."""
    return NOTHING if value is None else f"{value:.2f}"


def accepted(at: Interval, **labels: str) -> str:
    """Format the share of draft tokens accepted; a dash if none was verified."""
    share = at.share("accepted_tokens_total", "drafted_tokens_total", **labels)
    return NOTHING if share is None else f"{share:.0%}"


def size(value: float) -> str:
    """Format bytes in a suitable unit."""
    for unit in ("B", "kB", "MB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def pair(quantiles: tuple[Quantile, Quantile]) -> str:
    """Format the median and 95th percentile, in ms."""
    return " / ".join(map(milliseconds, quantiles)) + ("" if quantiles[0].seconds is None else " ms")


def milliseconds(one: Quantile) -> str:
    """Format a quantile in ms, without the unit."""
    if one.seconds is None:
        return NOTHING
    return f"{'>' if one.beyond else ''}{one.seconds * 1e3:.3g}"


def hints(at: Interval) -> str:
    """Format the time per forward spent on hints, and how many were sent per second."""
    seconds = at.share("hint_seconds_sum", "hint_seconds_count")
    return NOTHING if seconds is None else f"{seconds * 1e3:.2f} ms per forward, {at.rate('hints_sent_total'):.0f}/s"


def with_all(at: Interval, name: str, **labels: str) -> str:
    """Format the growth in this interval, and the total since the verifier started."""
    return f"{at.grown(name, **labels):.0f} ({at.now.total(name, **labels):.0f} in total)"
