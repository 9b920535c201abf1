"""Edge and cloud in one thread: the real EdgeDecoder and the real engine, joined by the wire's bytes and no socket.

Every message is encoded, size-checked and decoded as on the wire. A seeded coin decides how long each message takes
in polls, so that drafts overlap and verdicts come late without any waiting; chosen messages are lost with the link.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from io import StringIO

import msgspec

from cloud_verifier.engine.engine import Engine
from cloud_verifier.engine.interface import EngineEnvironment
from cloud_verifier.engine.tasks import CloseTask, OpenTask, SessionTask
from cloud_verifier.engine.work import Models
from cloud_verifier.logs import EventLog
from cloud_verifier.net.parts import MOST_PARTS, DraftParts, PartsBroken, PartTwice
from specdec.errors import LinkLost
from specdec.link.wire import (
    ERROR_UNKNOWN_SESSION,
    PROTOCOL_VERSION,
    AloneUp,
    Close,
    Down,
    DraftUp,
    ErrorDown,
    Hello,
    HintDown,
    More,
    Open,
    PartUp,
    Ping,
    Pong,
    SampledUp,
    Tokens,
    Up,
    VerdictDown,
    Welcome,
    decode_down,
    decode_up,
    encode,
)
from specdec.models import LoadedModel

_PATIENCE, _PAUSE_S = 1000, 0.005
LOOKS = 4
"""Forwards that the cloud runs, at most, between two looks of the edge."""


class WiredLink:
    """Stands in for a Link whose other end is an engine of this process.

    slowness: the chance that a message has not moved when the edge looks; 0: everything arrives at once.
    cuts: at which drafts of the edge, or messages of tokens where the cloud streams (counted from 1), the link breaks:
    that message and all that is on its way is gone. lose_more: the link also breaks at the first request for more of a
    row, which comes only where something rare was drawn.
    stale: every verdict comes again later, and once more in the name of another session.
    parts: drafts may come in parts; meddle: what becomes of each of those on its way, the parts that come instead.
    Sessions that want hints get them, made up: right and wrong ones, twice, out of order, late, and of other sessions.
    """

    address = "wired"
    connect_timeout_s = reply_timeout_s = round_timeout_s = 3600.0

    def __init__(
        self,
        target: LoadedModel,
        cloud_draft: LoadedModel | None = None,
        slowness: float = 0.0,
        cuts: Collection[int] = (),
        seed: int = 0,
        stale: bool = False,
        lose_more: bool = False,
        parts: bool = False,
        meddle: Callable[[PartUp], list[PartUp]] = lambda part: [part],
    ) -> None:
        self.target = target
        self._log = StringIO()
        environment = EngineEnvironment(self._reply, EventLog(self._log))
        self._engine = Engine(Models(target, cloud_draft), environment)
        self._has_draft = cloud_draft is not None
        self._slowness = slowness
        self._cuts = frozenset(cuts)
        self._random = random.Random(seed)
        self._up: deque[bytes] = deque()
        self._down: deque[bytes] = deque()
        self._connected = False
        self._open = 0
        self._sessions = 0
        self._counted = 0
        self._empty = 0
        self._stale = stale
        self._lose_more = lose_more
        self._takes_parts = parts
        self._meddle = meddle
        self._parts = DraftParts()
        self.whole: list[DraftUp | SampledUp] = []
        self.parts_seen = self.broken = self.repeated = 0
        self.mores = 0
        self.rounds = 0
        self._wants_hints = self._has_pictures = False
        self._old_verdicts: list[VerdictDown] = []

    def begin_answer(self, ids: Sequence[int], images: Sequence[bytes]) -> None:
        """There is one verifier."""

    def answer_began(self) -> None:
        """There is no fleet."""

    def end_answer(self) -> None:
        """No caller asks."""

    def move_on(self) -> None:
        """There is no other."""

    def ensure_connected(self, give_up: Callable[[], bool] = lambda: False) -> Welcome:
        """Connected at once."""
        self._connected = True
        target = self.target
        eos = sorted(target.eos_token_ids)
        return Welcome(
            PROTOCOL_VERSION,
            target.path,
            target.vocab_size,
            target.vocabulary_fingerprint,
            eos,
            target.context_limit,
            exits=[0],
            drafts=self._has_draft,
            parts=MOST_PARTS if self._takes_parts else 0,
        )

    def next_session(self) -> int:
        """A session number that was not used yet."""
        self._sessions += 1
        return self._sessions

    def send(self, message: Up) -> int:
        """Put a message on its way; returns its size in bytes."""
        if isinstance(message, (DraftUp, SampledUp, PartUp)):
            self._count()
        if isinstance(message, (DraftUp, SampledUp, AloneUp)):
            self.rounds = message.round
        if isinstance(message, More):
            self.mores += 1
            if self._lose_more and self.mores == 1:
                self.reset()
        self._check()
        sent = self._meddle(message) if isinstance(message, PartUp) else [message]
        self._up.extend(encode(one) for one in sent)
        return len(encode(message))

    def receive(self, timeout_s: float) -> tuple[Down, int] | None:
        """The next message, or None where it is still on its way and the edge has better to do than to wait."""
        self._check()
        hurry = timeout_s <= 0.0 and self._slowness > 0.0
        while self._up and not (hurry and self._random.random() < self._slowness):
            self._deliver(self._up.popleft())
        self._run_engine()
        if not self._down:
            self._empty += 1
            if self._has_pictures:  # a thread of the engine's may be at one
                time.sleep(_PAUSE_S)
            assert self._empty < _PATIENCE, (
                f"the edge waits for what never comes; the cloud said: {self._log.getvalue()}"
            )
            return None
        if hurry and self._random.random() < self._slowness:
            return None
        self._empty = 0
        data = self._down.popleft()
        message = decode_down(data)
        if isinstance(message, Tokens):
            self._count()
            self._check()
        return message, len(data)

    def reset(self) -> None:
        """The connection is gone with everything on its way."""
        self._connected = False
        self._up.clear()
        self._down.clear()
        self._parts.drop()

    def silent(self, seconds: float) -> LinkLost:
        """Drop the connection because nothing was heard."""
        self.reset()
        return LinkLost("nothing was heard")

    def stalled(self, seconds: float) -> LinkLost:
        """Drop the connection because the answer did not go on."""
        return self.silent(seconds)

    def _count(self) -> None:
        self._counted += 1
        if self._counted in self._cuts:
            self.reset()

    def _check(self) -> None:
        if not self._connected:
            raise LinkLost("the link is lost: this is what the test wants")

    def _complete(self, part: PartUp) -> DraftUp | SampledUp | None:
        """As the verifier's admission does."""
        self.parts_seen += 1
        if part.session != self._open:
            return None
        try:
            self._parts.add(part, 0.0, 64, 1 << 20)
        except PartTwice:
            self.repeated += 1
        except PartsBroken as error:
            self.broken += 1
            self._engine.submit(CloseTask((b"edge", part.session)))
            self._open = 0
            self._down.append(encode(ErrorDown(part.session, ERROR_UNKNOWN_SESSION, str(error))))
        else:
            if not part.more:
                self.rounds = part.round
                return self._parts.whole()
        return None

    def _deliver(self, data: bytes) -> None:
        message = decode_up(data)
        if isinstance(message, PartUp | DraftUp | SampledUp) and self._parts.superseded_by(message.round):
            self._parts.drop()
        if isinstance(message, PartUp):
            whole = self._complete(message)
            if whole is None:
                return
            message = whole
        if isinstance(message, DraftUp | SampledUp):
            self.whole.append(message)
        key = (b"edge", getattr(message, "session", 0))
        if isinstance(message, Hello):
            return
        if isinstance(message, Open):
            self._wants_hints = message.hints > 0
            self._open, self._parts = message.session, DraftParts()
            self._has_pictures = bool(message.images)
            self._engine.submit(OpenTask(key, message, 0.0))
        elif isinstance(message, Close):
            self._engine.submit(CloseTask(key))
        elif isinstance(message, Ping):
            self._down.append(encode(Pong(message.session, self.rounds, self.rounds)))
        else:
            self._engine.submit(SessionTask(key, message, 0.0))

    def _run_engine(self) -> None:
        """Let the engine do some of what it has."""
        for _ in range(LOOKS):
            if self._engine.idle:
                return
            self._engine.work_off()

    def _reply(self, key: object, message: Down, over: bool) -> None:
        if self._stale and isinstance(message, VerdictDown):
            for old in self._old_verdicts:
                self._down.append(encode(old))
            stranger = msgspec.structs.replace(message, session=message.session + 1, last=0)
            self._down.append(encode(stranger))
            self._old_verdicts = [*self._old_verdicts[-1:], message]
        hints = self._made_up_hints(message) if isinstance(message, VerdictDown) and self._wants_hints else []
        late = len(hints) // 3
        self._down.extend(encode(hint) for hint in hints[late:])
        self._down.append(encode(message))
        self._down.extend(encode(hint) for hint in hints[:late])

    def _made_up_hints(self, verdict: VerdictDown) -> list[HintDown]:
        draw, session, round_ = self._random.randrange, verdict.session, verdict.round
        vocab = self.target.vocab_size
        hints = [
            HintDown(session, round_, draw(5), draw(vocab + 2), self._random.random(), draw(8), 1)
            for _ in range(4)
        ]
        if verdict.token is not None:
            hints.append(HintDown(session, round_, verdict.last, verdict.token, 0.5, 3, 1))
        hints += hints[:2]
        hints += [
            HintDown(session, max(0, round_ - 1), 0, 1, 0.9, 7, 1),
            HintDown(session + 1, round_, 0, 1, 0.9, 7, 1),
        ]
        self._random.shuffle(hints)
        return hints
