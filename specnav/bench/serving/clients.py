"""`specnav bench --clients N`: many edges, a process each, lean on one verifier; what it holds, in a table.

Each client asks questions in turn, from a place of its own. They begin one after the other; what is counted is what
came while all of them were asking.
"""

from __future__ import annotations

import itertools
import multiprocessing
import multiprocessing.context
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from specdec.models import LoadedModel, Prompt, chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.sampling.disturbed import Disturbance
from specnav.bench.config import BenchConfig, generation_options
from specnav.bench.core.clients import ClientsRow
from specnav.bench.core.near_ties import NearTies
from specnav.bench.core.records import AcceptanceRecord
from specnav.bench.emulated import find_acceptance
from specnav.bench.processes import surroundings
from specnav.bench.questions import load_questions
from specnav.bench.serving.client import PATIENCE_S, ClientJob, ClientRecord, run_client
from specnav.bench.serving.watch import METRICS_FLAGS, Between, between, look, metrics_of
from specnav.errors import HarnessError, UsageError
from specnav.results.demo import percentile

PROMPTS = 12
LONGEST_PROMPT = 200
STAGGER_S = 0.05
SETTLING_S = 1.0
MOST_SESSIONS = 64
START_TIMEOUT_S = 300.0


def measure_clients(
    config: BenchConfig, method: str, clients: int, seconds: float, prompts: Sequence[Prompt],
    expected: Sequence[tuple[int, ...]], logs: Path, server_flags: Sequence[str] = (), engine: str = "own",
    disturbance: Disturbance | None = None, near_ties: NearTies | None = None,
) -> ClientsRow:
    """Run so many clients against a verifier of their own. disturbance: of the drafts, where acceptance is emulated;
    near_ties: tells those from wrong answers, where the target works in half precision.
    Raises ChildFailed, HarnessError, UsageError.
    """
    from specdec.methods import get_method

    options = generation_options(config)
    most = ("--max-sessions", str(max(MOST_SESSIONS, 2 * clients)))
    flags = (*METRICS_FLAGS, *most, *server_flags)
    with surroundings(config, logs, get_method(method).cloud_drafts, flags, engine, disturbance) as place:
        endpoint = place.open_link()
        metrics = metrics_of(place.verifier.log)
        jobs = [
            ClientJob(
                number, endpoint, method, config.draft_model, config.gguf, config.gamma, config.draft_ms,
                tuple(prompts), number * 5 % len(prompts), options, str(disturbance or ""),
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
    row = summarise(method, records, first, last, expected, seen, near_ties)
    return msgspec.structs.replace(
        row, prompt_tokens=[len(one.ids) for one in prompts], answer_tokens=[len(ids) for ids in expected]
    )


def settling_s(config: BenchConfig, clients: int) -> float:
    """How long it takes until the prompts of all are in: at most a forward each."""
    return SETTLING_S + (clients * config.verify_ms + 2 * config.rtt_ms) / 1e3


def summarise(
    method: str, records: Sequence[ClientRecord], first: float, last: float,
    expected: Sequence[tuple[int, ...]], seen: Between, near_ties: NearTies | None = None,
) -> ClientsRow:
    """The row of a run. first, last: the clock when all were asking, and when they were told to end."""
    whole = last - first
    rates = sorted(sum(n for at, n in record.chunks if first <= at <= last) / whole for record in records)
    rounds = [one for record in records for one in record.rounds if first <= one.at_s]
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


def ask_for(config: BenchConfig, target: LoadedModel) -> tuple[list[Prompt], list[tuple[int, ...]]]:
    """Prompts that fit, and what the target alone answers. Raises UsageError where none fits."""
    options = generation_options(config)
    prompts = [chat_prompt(target, question.turns[0]) for question in load_questions(config.questions, config.limit)]
    fit = [prompt for prompt in prompts if len(prompt.ids) <= LONGEST_PROMPT][:PROMPTS]
    if not fit:
        raise UsageError("no question is short enough; ask shorter ones")
    return fit, [tuple(generate_local(target, prompt, options)) for prompt in fit]


def near_ties_of(
    config: BenchConfig, target: LoadedModel, prompts: Sequence[Prompt], expected: Sequence[tuple[int, ...]]
) -> NearTies | None:
    """What tells near-ties from wrong answers; None where there are no near-ties: in float32, and sampled."""
    options = generation_options(config)
    if target.dtype.itemsize >= 4 or options.temperature != 0:
        return None
    return NearTies(target, prompts, expected, options)


def drafts_disturbed(config: BenchConfig, target: LoadedModel, say: Callable[[str], None]) -> AcceptanceRecord | None:
    """What emulates the acceptance that is asked for, on the questions of `ask_for`; None where none is."""
    if not config.acceptance:
        return None
    questions = [replace(one, turns=one.turns[:1]) for one in load_questions(config.questions, config.limit)]
    fit = [one for one in questions if len(chat_prompt(target, one.turns[0]).ids) <= LONGEST_PROMPT]
    return find_acceptance(config, target, fit[:PROMPTS], say)


def load_target(config: BenchConfig) -> LoadedModel:
    """The target, for what it alone would answer."""
    return load_model(config.target_model, config.device, config.dtype, config.quantize)


@contextmanager
def processes_of(jobs: Sequence[ClientJob]) -> Iterator[list[Connection]]:
    """A process for each, forked from one that has imported everything; all are ended in any case."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["specnav.bench.serving.client"])
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
        raise HarnessError("a client ended without a word") from None
    return record
