"""`specnav bench --clients N`: many edges, a process each, lean on one verifier; what it holds, in a table.

Each client asks questions in turn, from a place of its own. They begin one after the other; what is counted is what
came while all of them were asking.
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.context
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from evaluation.questions import load_questions
from harness.errors import HarnessError
from specdec.models import LoadedModel, Prompt, chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.bench.client import PATIENCE_S, ClientJob, ClientRecord, run_client
from specnav.bench.config import BenchConfig
from specnav.bench.processes import surroundings

PROMPTS = 12
LONGEST_PROMPT = 200
STAGGER_S = 0.05
START_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class ClientsRow:
    """One method with so many clients. Rates are tokens a second while all were asking.

    slow: what all but a twentieth of the clients reach or exceed. verify_ms, queue_ms, batch: medians of the rounds as
    the verdicts tell them. server: the engine's own figures over its whole life. wrong: answers that were not the
    target's. errors: clients that ended early, and why.
    """

    method: str
    clients: int
    rate: float
    median: float
    slow: float
    verify_ms: float
    queue_ms: float
    batch: float
    answers: int
    wrong: int
    errors: tuple[str, ...]
    server: dict[str, float]


def measure_clients(
    config: BenchConfig, method: str, clients: int, seconds: float, prompts: Sequence[Prompt],
    expected: Sequence[tuple[int, ...]], logs: Path, server_flags: Sequence[str] = (),
) -> ClientsRow:
    """Run so many clients against a verifier of their own. Raises ChildFailed, HarnessError."""
    from specdec.methods import get_method

    options = GenerationOptions(config.max_new_tokens, seed=config.seed)
    with surroundings(config, logs, get_method(method).cloud_drafts, server_flags) as place:
        endpoint = place.open_link()
        jobs = [
            ClientJob(
                number, endpoint, method, config.draft_model, config.gamma, config.draft_ms, tuple(prompts),
                number * 5 % len(prompts), options,
            )
            for number in range(clients)
        ]
        with processes_of(jobs) as pipes:
            _await_ready(pipes)
            begin = time.monotonic() + 0.2
            first, last = begin + STAGGER_S * clients + 1.0, begin + STAGGER_S * clients + 1.0 + seconds
            for number, pipe in enumerate(pipes):
                pipe.send((begin + STAGGER_S * number, last))
            records = [_receive(pipe, seconds + PATIENCE_S) for pipe in pipes]
        place.supervisor.stop(place.verifier.name)
        server = served(place.verifier.log)
    return summarise(method, records, first, last, expected, server)


def summarise(
    method: str, records: Sequence[ClientRecord], first: float, last: float,
    expected: Sequence[tuple[int, ...]], server: dict[str, float],
) -> ClientsRow:
    """The row of a run. first, last: the clock when all were asking, and when they were told to end."""
    whole = last - first
    rates = sorted(sum(n for at, n in record.chunks if first <= at <= last) / whole for record in records)
    rounds = [one for record in records for one in record.rounds if first <= one[0]]
    answers = [one for record in records for one in record.answers]
    return ClientsRow(
        method=method,
        clients=len(records),
        rate=sum(rates),
        median=statistics.median(rates),
        slow=rates[len(rates) // 20],
        verify_ms=statistics.median([one[1] for one in rounds] or [0.0]),
        queue_ms=statistics.median([one[2] for one in rounds] or [0.0]),
        batch=statistics.fmean([one[3] for one in rounds] or [0.0]),
        answers=len(answers),
        wrong=sum(ids != expected[index] for index, ids in answers),
        errors=tuple(record.error for record in records if record.error),
        server=server,
    )


def ask_for(config: BenchConfig, target: LoadedModel) -> tuple[list[Prompt], list[tuple[int, ...]]]:
    """Prompts that fit, and what the target alone answers."""
    options = GenerationOptions(config.max_new_tokens, seed=config.seed)
    prompts = [chat_prompt(target, question.turns[0]) for question in load_questions(config.questions, config.limit)]
    fit = [prompt for prompt in prompts if len(prompt.ids) <= LONGEST_PROMPT][:PROMPTS]
    return fit, [tuple(generate_local(target, prompt, options)) for prompt in fit]


def load_target(config: BenchConfig) -> LoadedModel:
    """The target, for what it alone would answer."""
    return load_model(config.target_model, config.device, config.dtype, config.quantize)


def served(log: Path) -> dict[str, float]:
    """What a verifier's log says at its end of the work it has done; nothing where it does not."""
    for line in log.read_text().splitlines():
        if '"served"' in line:
            found = json.loads(line)
            return {name: value for name, value in found.items() if isinstance(value, int | float)}
    return {}


@contextmanager
def processes_of(jobs: Sequence[ClientJob]) -> Iterator[list[Connection]]:
    """A process for each, forked from one that has imported everything; all are ended in any case."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["specnav.bench.client"])
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
