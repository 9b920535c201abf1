# SPDX-License-Identifier: Apache-2.0
"""What an engine is: all that the server and its clients need of one, whatever computes the forwards.

`tests/engine_contract` holds what every engine must do. An engine knows no sockets; it may do less than another, and
says so, so that edges choose among what is there.
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
    """What an engine can do beside chains of ids and decoding alone.

    exits: layers that hints come from. drafts: whether a draft model of its own. trees: token trees. split: the upper
    layers alone. sampled: rejection sampling, with what q said. several: drafts in flight behind one another.
    grammars: answers that follow one.
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
        """What is reported to edges that it cannot do, in the words of the wire."""
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
    """What an engine is given. outbox: takes its replies, in the thread that carries out its work.

    wake: called, from any thread, when there is work that did not come through `submit`. on_out: called once with
    every task handed over, when it waits no longer. tracing: where spans go; None: no tracing.
    fail: called, from any thread, when the engine cannot go on; why, in a line. beats: its loops mark theirs there.
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
    """Owns every answer in progress. One thread does its work: in `run`, or in `work_off` between other things."""

    @property
    def can(self) -> Capabilities:
        """What it can do; never changes."""
        ...

    @property
    def load(self) -> EngineLoad:
        """What it has done, for any thread to read."""
        ...

    @property
    def idle(self) -> bool:
        """True where nothing is waiting."""
        ...

    def submit(self, task: Task) -> None:
        """Hand over a task, from any thread. A session's tasks are taken as they come; its failure ends it alone."""
        ...

    def run(self) -> None:
        """Work until stop()."""
        ...

    def work_off(self) -> None:
        """Take in what has come, and run one forward, if one is wanted."""
        ...

    def stop(self) -> None:
        """End after the forward that is running now, from any thread; what was asked and not answered is dropped."""
        ...

    def tell_prices(self, row_us: Sequence[tuple[int, int]]) -> None:
        """What forwards take by their rows, (rows, microseconds)."""
        ...

    def kv_admitted(self) -> Mapping[SessionKey, int]:
        """Bytes of cache by session, as they were a moment ago; from any thread."""
        ...

    def gauges(self) -> Mapping[str, float]:
        """What is so now, of `observing.metrics.GAUGES`; from any thread."""
        ...

    def counters(self) -> Mapping[str, float]:
        """What only ever grows, of `observing.metrics.COUNTERS`; from any thread."""
        ...


def failure_of(error: Exception, use: SessionUse) -> tuple[str, str]:
    """What a session that has failed tells its client: a code of the wire, and the reason in a line. It is logged."""
    if isinstance(error, OverBudget | OverSpent):
        code = ERROR_BUSY
    elif isinstance(error, ModelError | OptionsError | ProtocolError):
        code = ERROR_REFUSED
    else:
        use.log.error("session_failed", traceback=use.log.trace_of(error))
        return ERROR_INTERNAL, f"the verifier failed on this session ({type(error).__name__})"
    use.log.warning(code, reason=str(error))
    return code, str(error)


MakeEngine = Callable[[EngineEnvironment], AnyEngine]
