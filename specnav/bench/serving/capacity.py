"""`specnav bench --clients 1,8,16`: every method with each number of clients; a table, and `clients.json` beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from specnav.bench.config import BenchConfig, make_config
from specnav.bench.core.clients import ClientsRow
from specnav.bench.emulated import disturbance_of
from specnav.bench.run import methods_of, settings_of
from specnav.bench.serving.clients import (
    ask_for,
    drafts_disturbed,
    load_target,
    measure_clients,
    near_ties_of,
)
from specnav.bench.view import BenchView
from specnav.errors import UsageError
from specnav.run_folder import new_run_folder, started_at
from specnav.serve import on_vllm
from specnav.signals import ends_on_signals
from specnav.terminal import plain_table

CLIENTS_FILE = "clients.json"
SECONDS = 10.0
MOST_CLIENTS = 256
LEGEND = (
    "n: clients; x: against one; each: tok/s of a client, median; slow: what 95 % of them reach; work, wait: ms in the "
    "cloud a verdict; batch: sessions that shared its forward; idle: share of the time without a forward; cores: busy, "
    "of the whole machine; wrong: of the answers that came to their end "
    "(≈: near-ties of half precision)"
)


def numbers_of(words: str) -> list[int]:
    """`1,8,16` as numbers. Raises UsageError."""
    try:
        numbers = [int(word) for word in words.split(",")]
    except ValueError:
        numbers = [0]
    if not all(1 <= number <= MOST_CLIENTS for number in numbers):
        raise UsageError(f"--clients {words!r} is no list of numbers from 1 to {MOST_CLIENTS}; give e.g. 1,8,16")
    return numbers


def methods_for_clients(config: BenchConfig) -> tuple[tuple[str, ...], str]:
    """The methods to measure, and what is to be said about those left out. Raises UsageError where none is left."""
    from specdec.methods import get_method
    from specnav.bench.core.names import ORACLES

    methods, left_out = methods_of(config)
    splits = [name for name in methods if name in ORACLES or get_method(name).split]
    methods = tuple(name for name in methods if name not in splits)
    if not methods:
        raise UsageError(f"{', '.join(splits)} cannot be measured with many clients; name others with --methods")
    return methods, left_out


def run_capacity(
    flags: Mapping[str, Any], clients: str, seconds: float, server_flags: Sequence[str], engine: str = "own"
) -> int:
    """Measure, print and write; returns the exit code (130 when interrupted). Raises UsageError and the rooms' errors.

    server_flags: more words of the verifier's command line. engine: of the verifier, own or vllm.
    """
    counts = numbers_of(clients)
    config = make_config(flags)
    if engine == "vllm":
        on_vllm([""])  # whether it is there, before anything is loaded
    methods, left_out = methods_for_clients(config)
    folder = new_run_folder(config.out, "clients", datetime.now())
    view = BenchView()
    if left_out:
        view.say(left_out)
    rows: list[ClientsRow] = []
    began = started_at()
    view.say("what the target alone answers")
    target = load_target(config)
    prompts, expected = ask_for(config, target)
    near_ties = near_ties_of(config, target, prompts, expected)
    found = drafts_disturbed(config, target, view.say)
    interrupted = False
    try:
        with ends_on_signals():
            for method in methods:
                for count in counts:
                    view.say(f"{method}, {count} clients, {seconds:g} s")
                    logs = folder / "logs" / f"{method.replace('/', '_')}-{count}"
                    rows.append(
                        measure_clients(
                            config, method, count, seconds, prompts, expected, logs, server_flags, engine,
                            disturbance_of(found), near_ties,
                        )
                    )
    except KeyboardInterrupt:
        interrupted = True
    written = {
        "config": {
            **settings_of(config, methods),
            "seconds": seconds,
            "server_flags": " ".join(server_flags),
            "engine": engine,
        },
        "started_at": began,
        "interrupted": interrupted,
        "acceptance": None if found is None else found.line,
        "rows": rows,
    }
    place = folder / CLIENTS_FILE
    place.write_bytes(msgspec.json.format(msgspec.json.encode(written)))
    Console().print(table(rows))
    if found is not None:
        view.say(found.line)
    view.say(f"results: {place}")
    if near := sum(row.near_ties for row in rows):
        view.say(f"half precision: {near} answers left the target's at a near-tie, which is no error")
    wrong = sum(row.wrong for row in rows)
    if wrong:
        raise UsageError(f"{wrong} answers were not the target's: see {place}")
    return 130 if interrupted else 0


def table(rows: Sequence[ClientsRow]) -> Table:
    """For the terminal. times: against one client of the same method."""
    ones = {row.method: row.rate for row in rows if row.clients == 1}
    titles = ("method", "n", "tok/s", "x", "each", "slow", "work", "wait", "batch", "idle", "cores", "wrong")
    found = plain_table(titles, {"method"}, "many clients on one verifier")
    found.caption = LEGEND
    for row in rows:
        times = f"{row.rate / ones[row.method]:.2f}" if ones.get(row.method) else ""
        found.add_row(
            row.method, str(row.clients), f"{row.rate:.1f}", times, f"{row.median:.1f}", f"{row.slow:.1f}",
            f"{row.verify_ms:.0f}", f"{row.queue_ms:.0f}", f"{row.batch:.1f}",
            f"{row.server.get('idle_share', 0):.0%}", f"{row.cores_busy:.0%}{'!' * bool(row.mark)}",
            f"{row.wrong}/{row.answers}{f' ≈{row.near_ties}' if row.near_ties else ''}",
        )  # fmt: skip
    if any(row.mark for row in rows):
        found.caption = f"{LEGEND}\n!: the machine's cores were busy, so it is not the verifier that decides"
    for row in rows:
        if row.errors:
            early = f"{len(row.errors)} ended early ({row.errors[0]})"
            found.caption = f"{found.caption}\n{row.method}, {row.clients} clients: {early}"
    return found
