# SPDX-License-Identifier: Apache-2.0
"""`specnav bench clients N`: the load that one verifier sustains from many edges, each a process; printed as a table.

Each client asks the questions in turn, starting at a different one. The clients start one after another. Only the time
in which all of them were active counts.
"""

from __future__ import annotations

import itertools
import multiprocessing
import multiprocessing.context
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from specdec.methods import get_method
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local
from specnav.bench.data.names import ORACLES
from specnav.bench.data.questions import load_questions
from specnav.bench.records.bench import AcceptanceRecord
from specnav.bench.records.capacity import CLIENTS_FILE, ClientsRow, ClientsRun
from specnav.bench.runner.acceptance import disturbance_of, find_acceptance
from specnav.bench.runner.client import PATIENCE_S, BenchClientJob, ClientRecord, run_client
from specnav.bench.runner.ending import noting_the_end
from specnav.bench.runner.near_ties import NearTies
from specnav.bench.runner.processes import load_target, may_round, surroundings
from specnav.bench.runner.run import LOGS, methods_of, new_folder, settings_of
from specnav.bench.runner.view import BenchView
from specnav.bench.runner.watch import METRICS_FLAGS, Between, between, look, metrics_of
from specnav.bench.settings import BenchConfig, generation_options, make_config
from specnav.errors import HarnessError, UsageError
from specnav.results.demo import percentile
from specnav.results.files import write_json
from specnav.run_folder import new_run_folder, started_at
from specnav.serve import on_vllm
from specnav.signals import signals_wait
from specnav.terminal import plain_table

PROMPTS = 12
LONGEST_PROMPT = 200
STAGGER_S = 0.05
SETTLING_S = 1.0
MOST_SESSIONS = 64
START_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class ClientQuestions:
    """The clients' prompts and the expected answers.

    expected: the target's own answers. near_ties: distinguishes near-ties from wrong answers; None if rounding cannot
    flip tokens. acceptance: of the drafts, if it is emulated.
    """

    prompts: Sequence[Prompt]
    expected: Sequence[tuple[int, ...]]
    near_ties: NearTies | None
    acceptance: AcceptanceRecord | None


def measure_clients(
    config: BenchConfig, method: str, clients: int, seconds: float, asked: ClientQuestions, logs: Path,
    server_flags: Sequence[str] = (),
) -> ClientsRow:
    """Start a verifier and run `clients` clients against it. Raises ChildFailed, HarnessError, UsageError."""
    prompts, disturbance = asked.prompts, disturbance_of(asked.acceptance)
    most = ("--max-sessions", str(max(MOST_SESSIONS, 2 * clients)))
    flags = (*METRICS_FLAGS, *most, *server_flags)
    with surroundings(config, logs, get_method(method).cloud_drafts, flags, disturbance) as place:
        endpoint = place.open_link()
        metrics = metrics_of(place.verifier.log)
        jobs = [
            BenchClientJob(
                endpoint, method, config, tuple(prompts), number * 5 % len(prompts), str(disturbance or "")
            )
            for number in range(clients)
        ]
        with processes_of(jobs) as pipes:
            _await_ready(pipes)
            begin = time.monotonic() + 0.2
            first = begin + STAGGER_S * clients + settling_s(config, clients)
            last = first + seconds
            for number, pipe in enumerate(pipes):
                pipe.send((begin + STAGGER_S * number, last))
            time.sleep(max(0.0, first - time.monotonic()))
            before = look(metrics)
            time.sleep(max(0.0, last - time.monotonic()))
            seen = between(before, look(metrics))
            records = [_receive(pipe, PATIENCE_S) for pipe in pipes]
        place.supervisor.stop(place.verifier.name)
    row = summarise(method, records, first, last, asked.expected, seen, asked.near_ties)
    return msgspec.structs.replace(
        row, prompt_tokens=[len(one.ids) for one in prompts], answer_tokens=[len(ids) for ids in asked.expected]
    )


def settling_s(config: BenchConfig, clients: int) -> float:
    """Seconds until all prompts are prefilled, at most one forward each."""
    return SETTLING_S + (clients * config.verify_ms + 2 * config.rtt_ms) / 1e3


def summarise(
    method: str, records: Sequence[ClientRecord], first: float, last: float,
    expected: Sequence[tuple[int, ...]], seen: Between, near_ties: NearTies | None = None,
) -> ClientsRow:
    """The row of a run. first, last: clock times from which all clients were active, and at which they were to end."""
    whole = last - first
    rates = sorted(sum(n for at, n in record.chunks if first <= at <= last) / whole for record in records)
    rounds = [one for record in records for at, one in record.rounds if first <= at]
    answers = [one for record in records for one in record.answers]
    others = [(index, ids) for index, ids in answers if ids != expected[index]]
    near = near_ties.count(others) if near_ties is not None else 0
    gaps = [
        1e3 * (after - before)
        for record in records
        for (before, _), (after, _) in itertools.pairwise(record.chunks)
        if first <= after <= last
    ]
    return ClientsRow(
        method=method,
        clients=len(records),
        rate=sum(rates),
        median=statistics.median(rates),
        slow=rates[len(rates) // 20],
        verify_ms=statistics.median([one.verify_ms for one in rounds] or [0.0]),
        queue_ms=statistics.median([one.queue_ms for one in rounds] or [0.0]),
        batch=statistics.fmean([one.batch for one in rounds] or [0.0]),
        answers=len(answers),
        wrong=len(others) - near,
        near_ties=near,
        errors=[record.error for record in records if record.error],
        server=seen.server,
        tokens_a_round=statistics.fmean([one.gained for one in rounds] or [0.0]),
        rows=1 + statistics.fmean([one.drafted for one in rounds] or [0.0]),
        cores_busy=seen.cores_busy,
        cores_ours=seen.cores_ours,
        seconds=whole,
        gap_ms=percentile(gaps, 50) or 0.0,
        gap_ms_p95=percentile(gaps, 95) or 0.0,
    )


def ask_target(config: BenchConfig, say: Callable[[str], None]) -> ClientQuestions:
    """The clients' questions, with the target's own answers. Raises UsageError if no question is short enough."""
    say("answering with the target alone")
    target, options = load_target(config), generation_options(config)
    questions = [replace(one, turns=one.turns[:1]) for one in load_questions(config.questions, config.limit)]
    asked = [(one, chat_prompt(target, one.turns[0])) for one in questions]
    fit = [(one, prompt) for one, prompt in asked if len(prompt.ids) <= LONGEST_PROMPT][:PROMPTS]
    if not fit:
        raise UsageError("no question is short enough; ask shorter ones")
    prompts = [prompt for _, prompt in fit]
    expected = [tuple(generate_local(target, prompt, options)) for prompt in prompts]
    near_ties = near_ties_of(config, target, prompts, expected)
    emulated = find_acceptance(config, target, [one for one, _ in fit], say) if config.acceptance else None
    return ClientQuestions(prompts, expected, near_ties, emulated)


def near_ties_of(
    config: BenchConfig, target: LoadedModel, prompts: Sequence[Prompt], expected: Sequence[tuple[int, ...]]
) -> NearTies | None:
    """Distinguishes near-ties from wrong answers; None in float32 on torch and when sampling."""
    options = generation_options(config)
    if not may_round(config, target) or options.temperature != 0:
        return None
    return NearTies(target, prompts, expected, options)


@contextmanager
def processes_of(jobs: Sequence[BenchClientJob]) -> Iterator[list[Connection]]:
    """Start one process per job, forked from a server that has imported everything; all end with the block."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["specnav.bench.runner.client"])
    pipes: list[Connection] = []
    started: list[multiprocessing.context.ForkServerProcess] = []
    try:
        for job in jobs:
            ours, theirs = context.Pipe()
            process = context.Process(target=run_client, args=(job, theirs), daemon=True)
            process.start()
            theirs.close()
            pipes.append(ours)
            started.append(process)
        yield pipes
    finally:
        for process in started:
            process.join(1.0)
            if process.is_alive():
                process.terminate()
                process.join(5.0)


def _await_ready(pipes: Sequence[Connection]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    for pipe in pipes:
        if not pipe.poll(max(0.0, deadline - time.monotonic())) or pipe.recv() != "ready":
            raise HarnessError(f"a client was not ready after {START_TIMEOUT_S:.0f} s: ask for fewer")


def _receive(pipe: Connection, timeout_s: float) -> ClientRecord:
    if not pipe.poll(timeout_s):
        raise HarnessError(f"a client did not end within {timeout_s:.0f} s")
    try:
        record: ClientRecord = pipe.recv()
    except EOFError:
        raise HarnessError("a client ended without a result") from None
    return record


MOST_CLIENTS = 256
LEGEND = (
    "n: clients; x: relative to one; each: tok/s per client, median; slow: rate that 95 % of them reach; work, wait: "
    "ms in the cloud per verdict; batch: sessions sharing its forward; idle: share of the time without a forward; "
    "cores: busy share of the whole machine; wrong: of the complete answers "
    "(≈: near-ties that rounding flipped)"
)


def numbers_of(words: str) -> list[int]:
    """Parse numbers like `1,8,16`. Raises UsageError."""
    try:
        numbers = [int(word) for word in words.split(",")]
    except ValueError:
        numbers = [0]
    if not all(1 <= number <= MOST_CLIENTS for number in numbers):
        raise UsageError(f"numbers of clients must be 1 to {MOST_CLIENTS}, got {words!r}: give e.g. 1,8,16")
    return numbers


def methods_for_clients(config: BenchConfig) -> tuple[tuple[str, ...], str]:
    """(methods to measure, a note about those left out). Raises UsageError if none is left."""
    methods, left_out = methods_of(config)
    splits = [name for name in methods if name in ORACLES or get_method(name).split]
    methods = tuple(name for name in methods if name not in splits)
    if not methods:
        raise UsageError(f"{', '.join(splits)} cannot be measured with many clients; name others with --methods")
    return methods, left_out


def run_capacity(flags: Mapping[str, Any], clients: str, seconds: float, server_flags: Sequence[str]) -> int:
    """Measure, print and write; returns the exit code (130 when interrupted).

    Raises UsageError and other packages' errors.

    server_flags: further arguments of the verifier's command line.
    """
    counts = numbers_of(clients)
    config = make_config(flags)
    if config.engine == "vllm":
        on_vllm([""])  # check that vLLM is installed before anything is loaded
    methods, left_out = methods_for_clients(config)
    folder = new_run_folder(config.out, "clients")
    view = BenchView()
    if left_out:
        view.say(left_out)
    rows: list[ClientsRow] = []
    began = started_at()
    asked = ask_target(config, view.say)
    with noting_the_end() as ending:
        for method, count in itertools.product(methods, counts):
            view.say(f"{method}, {count} clients, {seconds:g} s")
            logs = new_folder(folder / LOGS / f"{method.replace('/', '_')}-{count}")
            rows.append(measure_clients(config, method, count, seconds, asked, logs, server_flags))
    if ending.error and not rows:
        raise UsageError(ending.error)
    settings = {**settings_of(config, methods), "seconds": seconds, "server_flags": " ".join(server_flags)}
    line, place = asked.acceptance.line if asked.acceptance else None, folder / CLIENTS_FILE
    interrupted = bool(ending.code)
    found = ClientsRun(config=settings, started_at=began, interrupted=interrupted, acceptance=line, rows=rows)
    with signals_wait():
        write_json(place, found)
    Console().print(table(rows))
    if line is not None:
        view.say(line)
    view.say(f"results: {place}")
    if near := sum(row.near_ties for row in rows):
        view.say(f"{near} answers differ from the target's at a near-tie, which rounding may flip: no error")
    if wrong := sum(row.wrong for row in rows):
        raise UsageError(f"{wrong} answers differ from the target's: see {place}")
    return ending.exit_code()


def table(rows: Sequence[ClientsRow]) -> Table:
    """The table for the terminal; column x compares with one client of the same method."""
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
        found.caption = f"{LEGEND}\n!: the machine's cores were busy, so the verifier is not the limit"
    for row in rows:
        if row.errors:
            early = f"{len(row.errors)} ended early ({row.errors[0]})"
            found.caption = f"{found.caption}\n{row.method}, {row.clients} clients: {early}"
    return found
