# SPDX-License-Identifier: Apache-2.0
"""One client of `specnav bench clients`: a process that asks question after question for some seconds."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import NamedTuple

from cloud_verifier.serving import settle_memory
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import SpecdecError
from specdec.methods import get_method
from specdec.models import GgufOptions, Prompt, load_draft
from specdec.models.threads import set_threads
from specdec.models.timing.pacing import pace
from specdec.options import GenerationOptions
from specdec.sampling.disturbed import Disturbance

PATIENCE_S = 60.0


@dataclass(frozen=True)
class BenchClientJob:
    """The work of one client.

    endpoint: where it connects. prompts: asked in turn, starting at index `first`. draft_ms: paced time of a draft
    forward. disturbed: the draft's disturbance as text, where acceptance is emulated.
    """

    number: int
    endpoint: str
    method: str
    draft_model: str
    gguf: str
    gamma: int
    draft_ms: float
    prompts: tuple[Prompt, ...]
    first: int
    options: GenerationOptions
    disturbed: str = ""


class Round(NamedTuple):
    """One verdict.

    at_s: when its answer ended. verify_ms, queue_ms: forward and waiting time in the cloud. batch: sessions that shared
    the forward. gained: tokens gained. drafted: draft tokens judged.
    """

    at_s: float
    verify_ms: float
    queue_ms: float
    batch: int
    gained: int = 1
    drafted: int = 0


@dataclass
class ClientRecord:
    """The result of one client; times are seconds of the machine's monotonic clock.

    chunks: (time, number of tokens) in order of arrival. rounds: in order. answers: (index of the prompt, ids) of
    complete answers. error: why the client ended early.
    """

    number: int
    chunks: list[tuple[float, int]] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    answers: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    error: str = ""


def run_client(job: BenchClientJob, pipe: Connection) -> None:
    """Load, send "ready", receive the begin and end times, ask until the end, and send a ClientRecord."""
    method = get_method(job.method)
    draft = load_draft(job.draft_model, gguf=GgufOptions.read(job.gguf)) if method.drafts else None
    if draft is not None:
        set_threads(0, draft)
        draft.disturbance = Disturbance.read(job.disturbed)
        pace(draft, job.draft_ms)
    settle_memory()
    pipe.send("ready")
    begin, end = pipe.recv()
    record = ClientRecord(job.number)
    try:
        time.sleep(max(0.0, begin - time.monotonic()))
        with connect(job.endpoint, connect_timeout_s=PATIENCE_S, reply_timeout_s=PATIENCE_S) as link:
            decoder = EdgeDecoder(
                link, draft, job.method, gamma=job.gamma, resume_timeout_s=PATIENCE_S, clock=time.monotonic
            )
            index = job.first
            while time.monotonic() < end:
                _ask(job, decoder, index % len(job.prompts), record, end)
                index += 1
    except SpecdecError as error:
        record.error = str(error)
    except KeyboardInterrupt:
        record.error = "interrupted"
    pipe.send(record)


def _ask(job: BenchClientJob, decoder: EdgeDecoder, index: int, record: ClientRecord, end: float) -> None:
    ids: list[int] = []
    left = threading.Event()
    answer = decoder.generate(job.prompts[index], job.options, left)
    for chunk in answer:
        now = time.monotonic()
        ids += chunk
        record.chunks.append((now, len(chunk)))
        if now > end:
            left.set()
    if not left.is_set():
        record.answers.append((index, tuple(ids)))
    now = time.monotonic()
    record.rounds += [
        Round(now, one.verify_ms, one.queue_ms, one.batch, one.gained, one.drafted) for one in decoder.stats.rounds
    ]
