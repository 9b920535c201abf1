"""An engine without sockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

from cloud_verifier.engine.engine import Engine
from cloud_verifier.engine.interface import EngineEnvironment
from cloud_verifier.engine.scheduler import Policy, Scheduler
from cloud_verifier.engine.tasks import OpenTask, SessionKey, SessionTask, Task
from cloud_verifier.engine.work import Models
from cloud_verifier.logs import EventLog
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import (
    Down,
    DraftUp,
    Open,
)
from specdec.models import LoadedModel
from specdec.options import GenerationOptions

OPTIONS = GenerationOptions(40)


class Cloud:
    """An engine that runs on command, what it said to whom, and whose openings wait no longer."""

    def __init__(
        self,
        model: LoadedModel,
        policy: Policy | None = None,
        kv_bytes: int = 1 << 62,
        shared_bytes: int = 0,
        draft_model: LoadedModel | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.said: list[tuple[int, Down]] = []
        self.out: list[int] = []
        environment = EngineEnvironment(
            lambda key, message, over: self.said.append((key[1], message)),
            EventLog(StringIO()),
            on_out=self._went_out,
        )
        models = Models(model, draft_model)
        self.engine = Engine(models, environment, Scheduler(policy), kv_bytes, shared_bytes, clock)

    def _went_out(self, task: Task) -> None:
        if isinstance(task, OpenTask):
            self.out.append(task.key[1])

    def submit_open(self, session: int, ids: Sequence[int], **more: Any) -> None:
        options = more.pop("options", OPTIONS)
        message = Open(session, more.pop("stream", False), sampling_to_wire(options), list(ids), **more)
        self.engine.submit(OpenTask(key_of(session), message, 0.0))

    def submit_draft(self, session: int, round_: int, base: int, ids: Sequence[int]) -> None:
        self.engine.submit(SessionTask(key_of(session), DraftUp(session, round_, base, list(ids)), 0.0))

    def work(self) -> None:
        while not self.engine.idle:
            self.engine.work_off()

    def last(self, session: int) -> Down:
        return [message for number, message in self.said if number == session][-1]


def key_of(session: int) -> SessionKey:
    return (b"edge %d" % session, session)
