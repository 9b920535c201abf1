# SPDX-License-Identifier: Apache-2.0
"""One client of `specnav bench clients`: a process that asks question after question for some seconds."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from cloud_verifier.serving import settle_memory
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.edge.stats import RoundStats
from specdec.errors import SpecdecError
from specdec.methods import get_method
from specdec.models import GgufOptions, Prompt, load_draft
from specdec.models.threads import set_threads
from specdec.models.timing.pacing import pace
from specdec.sampling.disturbed import Disturbance
from specnav.bench.settings import BenchConfig, generation_options

PATIENCE_S = 60.0


@dataclass(frozen=True)
class BenchClientJob:
    """The work of one client.

    endpoint: where it connects. prompts: asked in turn, starting at index `first`. disturbed: the draft's disturbance
    as text, where acceptance is emulated.
    """

    endpoint: str
    method: str
    config: BenchConfig
    prompts: tuple[Prompt, ...]
    first: int
    disturbed: str = ""


@dataclass
class ClientRecord:
    """The result of one client; times are seconds of the machine's monotonic clock.

    chunks: (time, number of tokens) in order of arrival. rounds: (time at which its answer ended, round) in
    order. answers: (index of the prompt, ids) of complete answers. error: why the client ended early.
    """

    chunks: list[tuple[float, int]] = field(default_factory=list)
    rounds: list[tuple[float, RoundStats]] = field(default_factory=list)
    answers: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    error: str = ""


def run_client(job: BenchClientJob, pipe: Connection) -> None:
    """Load, send "ready", receive the begin and end times, ask until the end, and send a ClientRecord."""
    config, drafts = job.config, get_method(job.method).drafts
    draft = load_draft(config.draft_model, gguf=GgufOptions.read(config.gguf)) if drafts else None
    if draft is not None:
        set_threads(0, draft)
        draft.disturbance = Disturbance.read(job.disturbed)
        pace(draft, config.draft_ms)
    settle_memory()
    pipe.send("ready")
    begin, end = pipe.recv()
    record = ClientRecord()
    try:
        time.sleep(max(0.0, begin - time.monotonic()))
        with connect(job.endpoint, connect_timeout_s=PATIENCE_S, reply_timeout_s=PATIENCE_S) as link:
            decoder = EdgeDecoder(
                link, draft, job.method, gamma=config.gamma, resume_timeout_s=PATIENCE_S, clock=time.monotonic
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
    answer = decoder.generate(job.prompts[index], generation_options(job.config), left)
    for chunk in answer:
        now = time.monotonic()
        ids += chunk
        record.chunks.append((now, len(chunk)))
        if now > end:
            left.set()
    if not left.is_set():
        record.answers.append((index, tuple(ids)))
    now = time.monotonic()
    record.rounds += [(now, one) for one in decoder.stats.rounds]
