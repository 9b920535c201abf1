# SPDX-License-Identifier: Apache-2.0
"""The interface of an engine: all that the server and its clients need, whatever runs the forward passes.

`tests/engine_contract` tests what every engine must do. An engine uses no sockets. It may support less than another,
and reports that, so that edges choose a method that works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cloud_verifier.engine.memory import OverBudget
from cloud_verifier.engine.tasks import SessionKey, Task
from cloud_verifier.logs import EventLog
from cloud_verifier.observing.counts import EngineLoad, Heartbeats, SessionUse
from specdec.errors import ModelError, OptionsError, ProtocolError
from specdec.isolation.accounts import OverSpent
from specdec.isolation.workers import JobCancelled
from specdec.link.wire import (
    ERROR_BUSY,
    ERROR_INTERNAL,
    ERROR_REFUSED,
    LACKS_GRAMMARS,
    LACKS_SAMPLED,
    LACKS_SEVERAL,
    LACKS_SPLIT,
    LACKS_TREES,
    Down,
)
from specdec.tracing import Tracing
from specdec.verdict_log import LoggedAnswer

Keep = Callable[[LoggedAnswer], None]
Outbox = Callable[[SessionKey, Down, bool], None]
"""Takes (session, reply, whether the session is over)."""


@dataclass(frozen=True)
class Capabilities:
    """What an engine supports besides chains of ids and decoding without drafts.

    exits: layers with early exits, which make hints. drafts: drafting in the cloud. trees: token trees. split: running
    only the upper layers. sampled: rejection sampling with the draft's q. several: several drafts in flight.
    grammars: answers constrained by a grammar.
    """

    exits: tuple[int, ...] = ()
    drafts: bool = False
    trees: bool = True
    split: bool = True
    sampled: bool = True
    several: bool = True
    grammars: bool = True

    @property
    def lacks(self) -> list[str]:
        """What it does not support, in the wire's terms."""
        told = {
            LACKS_TREES: self.trees,
            LACKS_SPLIT: self.split,
            LACKS_SAMPLED: self.sampled,
            LACKS_SEVERAL: self.several,
            LACKS_GRAMMARS: self.grammars,
        }
        return [word for word, can in told.items() if not can]


@dataclass(frozen=True)
class EngineEnvironment:
    """What an engine is given.

    outbox: takes replies, in the thread that runs the engine. wake: called, from any thread, when there is work that
    did not come through `submit`. on_out: called once with every task when it stops waiting. tracing: where spans go;
    None: no tracing. fail: called, from any thread, with a one-line reason when the engine cannot continue. keep:
    stores finished answers; None: they are not stored. beats: heartbeats of the engine's loops.
    """

    outbox: Outbox
    log: EventLog
    wake: Callable[[], None] = lambda: None
    on_out: Callable[[Task], None] = lambda task: None
    tracing: Tracing | None = None
    fail: Callable[[str], None] = lambda why: None
    keep: Keep | None = None
    beats: Heartbeats = field(default_factory=Heartbeats)


class AnyEngine(Protocol):
    """Owns every answer in progress. One thread does its work: in `run`, or in `work_off` between other duties."""

    @property
    def can(self) -> Capabilities:
        """What it supports; never changes."""
        ...

    @property
    def load(self) -> EngineLoad:
        """Statistics of its work; readable from any thread."""
        ...

    @property
    def idle(self) -> bool:
        """True if nothing is waiting."""
        ...

    def submit(self, task: Task) -> None:
        """Queue a task, from any thread. Tasks of one session keep their order; a failure ends only its own session."""
        ...

    def run(self) -> None:
        """Work until stop()."""
        ...

    def work_off(self) -> None:
        """Take in new tasks, and run one forward pass if any session needs one."""
        ...

    def stop(self) -> None:
        """Stop after the current forward pass; from any thread. Unanswered requests are dropped."""
        ...

    def tell_prices(self, row_us: Sequence[tuple[int, int]]) -> None:
        """Set how long forward passes take, as (rows, microseconds) pairs."""
        ...

    def kv_admitted(self) -> Mapping[SessionKey, int]:
        """Bytes of KV cache by session, possibly slightly outdated; from any thread."""
        ...

    def gauges(self) -> Mapping[str, float]:
        """Current values of `observing.metrics.GAUGES`; from any thread."""
        ...

    def counters(self) -> Mapping[str, float]:
        """Current values of `observing.metrics.COUNTERS`; from any thread."""
        ...


def failure_of(error: Exception, use: SessionUse) -> tuple[str, str]:
    """The wire's error code and one line of reason for a failed session; also logs it."""
    if isinstance(error, OverBudget | OverSpent | JobCancelled):
        code = ERROR_BUSY
    elif isinstance(error, ModelError | OptionsError | ProtocolError):
        code = ERROR_REFUSED
    else:
        use.log.error("session_failed", traceback=use.log.trace_of(error))
        return ERROR_INTERNAL, f"the verifier failed on this session ({type(error).__name__})"
    use.log.warning(code, reason=str(error))
    return code, str(error)


MakeEngine = Callable[[EngineEnvironment], AnyEngine]
