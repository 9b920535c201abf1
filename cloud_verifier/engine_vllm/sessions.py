# SPDX-License-Identifier: Apache-2.0
"""One session on vLLM: its answer, its waiting tasks and its current work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cloud_verifier.engine.tasks import OpenTask, QueuedSession, SessionTask
from cloud_verifier.engine_vllm.answers import VllmAnswer
from cloud_verifier.engine_vllm.picking import Guide, Rules
from cloud_verifier.logs import EventLog
from specdec.errors import ProtocolError
from specdec.link.convert import sampling_from_wire
from specdec.link.wire import AloneUp, Down, DraftUp, HiddenUp, Open, Opened, Tokens, VerdictDown
from specdec.models import EncodedPrompt
from specdec.options import GenerationOptions
from specdec.sampling.choice import AnyGrammar
from specdec.sampling.recoveries import Recovery


class VllmSession(QueuedSession):
    """One session. options: set once they are checked. encoded, answer, grammar: set once the prompt is prepared.
    guide: follows the grammar along the part of the answer that vLLM has. request: its name in vLLM, "" while it has no
    cache there. draft: the draft being judged. alone: it streams without drafts.
    """

    options: GenerationOptions

    def __init__(self, opening: OpenTask, log: EventLog, number: int) -> None:
        """log: of the engine."""
        super().__init__(opening, log, number)
        self.opening = opening
        self.encoded: EncodedPrompt | None = None
        self.answer: VllmAnswer | None = None
        self.grammar: AnyGrammar | None = None
        self.guide: Guide | None = None
        self.request = ""
        self.requests = 0
        self.opened = False
        self.draft: DraftUp | None = None
        self.alone = False
        self.told = 0
        self.began_s = opening.arrived_s
        self.worked_s = 0.0

    @property
    def message(self) -> Open:
        """The message that opened it."""
        return self.opening.message

    @property
    def next_request(self) -> str:
        """A request name that was not used before."""
        self.requests += 1
        return f"{self.number}.{self.requests}"

    @property
    def rests(self) -> bool:
        """Whether it is idle."""
        return self.opened and self.draft is None and not self.alone and not len(self.tasks)

    def rules(self) -> Rules:
        """How its tokens are picked, starting from its current answer."""
        self.guide = None if self.grammar is None else Guide(self.grammar)
        return Rules.from_options(self.options, len(self.verified.ids), self.guide)

    def grow(self, tokens: Sequence[int]) -> None:
        """Append tokens from the target. Raises ModelError if its grammar failed on the way."""
        if self.guide is not None and self.guide.fault is not None:
            raise self.guide.fault
        self.verified.grow(tokens)

    @property
    def verified(self) -> VllmAnswer:
        """Its answer. Raises ProtocolError before it has begun."""
        if self.answer is None:
            raise ProtocolError("the session has not begun")
        return self.answer

    def begin(self, arrived_s: float) -> None:
        """Start timing new work, which arrived at `arrived_s`."""
        self.began_s = arrived_s
        self.worked_s = 0.0
        self.batch = 1

    def next_draft(self, on_out: Callable[[SessionTask], None]) -> None:
        """Take up waiting tasks until there is a draft to judge. Raises ProtocolError for an impossible task."""
        while self.draft is None and len(self.tasks):
            task, taken = self.tasks.get()
            for one in taken:
                on_out(one)
            self.begin(task.arrived_s)
            self._take(task)

    def _take(self, task: SessionTask) -> None:
        answer, message = self.verified, task.message
        if isinstance(message, HiddenUp):
            raise ProtocolError("a layer split was not agreed on when the session was opened")
        if isinstance(message, AloneUp):
            self.go_alone(message.speculate)
            return
        self.alone = False  # a draft from the edge ends decoding without drafts
        if not isinstance(message, DraftUp):
            raise ProtocolError("rejection sampling was not agreed on when the session was opened")
        if message.epoch < answer.epoch:
            return  # it builds on a draft that was rejected since: the edge expects no verdict
        answer.check(message)
        self.draft = message

    def go_alone(self, speculate: int) -> None:
        """Stream without drafts from here on, until a draft comes or the answer ends. Raises ProtocolError."""
        if speculate:
            raise ProtocolError(
                "this verifier has no draft model: its engine is vLLM, use ar, or --engine own"
            )
        self.alone = not self.verified.finished
        self.told = len(self.verified.ids)

    def reply(self, now: float) -> Down | None:
        """The reply that is ready by now, if any; `use` counts it."""
        answer = self.verified
        work, wait = self._times(now)
        if not self.opened:
            begun = len(self.message.history)
            if len(answer.ids) == begun:
                return None
            self.opened = True
            self.use.worked(work, wait)
            self.use.log.info("prefilled", verify_ms=work / 1e3, queue_ms=wait / 1e3)
            token = answer.ids[begun]
            self.told = begun + 1
            self.alone = self.alone and not answer.finished
            return Opened(self.key[1], token, answer.bounds.limit, work, wait)
        if self.draft is not None:
            found = answer.verdict(self.draft)
            if found is None:
                return None
            draft, self.draft = self.draft, None
            stays, token = found
            answer.settle(draft, stays)
            self._count(work, wait, stays + 1, len(draft.ids), stays)
            return VerdictDown(self.key[1], draft.round, stays, token, work, wait, self.batch)
        if self.alone and len(answer.ids) > self.told:
            base, ids = self.told, answer.ids[self.told :]
            self.told = len(answer.ids)
            self.alone = not answer.finished
            self._count(work, wait, len(ids), 0, 0)
            return Tokens(self.key[1], base, ids, work, wait, 0, self.batch)
        return None

    def _times(self, now: float) -> tuple[int, int]:
        """Microseconds in forward passes, and of waiting before and between them."""
        work = int(self.worked_s * 1e6)
        return work, max(0, int((now - self.began_s) * 1e6) - work)

    def _count(self, work: int, wait: int, tokens: int, drafted: int, accepted: int) -> None:
        self.use.worked(work, wait)
        self.use.replied(tokens, drafted, accepted)


def options_of(message: Open, grammars: bool = True) -> GenerationOptions:
    """The options of a session. Raises ProtocolError for options that this engine does not support."""
    options = sampling_from_wire(message.sampling)
    if Recovery(message.recovery) is not Recovery.NOISE or message.pending:
        raise ProtocolError(
            "this verifier's engine, vLLM, does not support rejection sampling: use sd, or --engine own"
        )
    if message.front_layers:
        raise ProtocolError(
            "this verifier's engine, vLLM, does not support a layer split: use sd, or --engine own"
        )
    if options.grammar and not grammars:
        raise ProtocolError(
            "this verifier's engine, vLLM on several GPUs, has no grammars: leave the grammar out, or use --engine own"
        )
    return options
