"""The edge's side of an answer: open a session, draft, send, take verdicts, stream out what is verified.

EdgeDecoder speaks to one Link and owns no model weights. It never gives out a token that the cloud has not
verified, and what it gives out does not depend on the draft model, the link, or how often the link was lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from specdec.drafting import Draft, Drafter
from specdec.edge_session import Cancelled, EdgeSession, SessionForgotten
from specdec.errors import LinkLost, ModelError, OptionsError
from specdec.link.channel import Link, connect
from specdec.link.wire import Welcome
from specdec.methods import get_method
from specdec.models import LoadedModel, Prompt
from specdec.options import GenerationOptions
from specdec.sampling.recovery import Recovery
from specdec.stats import AnswerStats, Finish

__all__ = ["EdgeDecoder", "GenerationOptions", "Prompt", "connect"]

MAX_GAMMA = 64
_RETRY_PAUSE_S = 0.1


class EdgeDecoder:
    """Generates answers over a link with one method; one answer at a time."""

    def __init__(
        self,
        link: Link,
        draft_model: LoadedModel | None = None,
        method: str = "sd",
        gamma: int = 4,
        resume_timeout_s: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """gamma: draft tokens a round. resume_timeout_s: how long to try to go on after a lost link (0: raise
        at once).

        Raises OptionsError for an unknown method, a gamma out of range, or a method that lacks its draft
        model.
        """
        self._method = get_method(method)
        if not 1 <= gamma <= MAX_GAMMA:
            raise OptionsError(f"gamma = {gamma!r} is out of range: choose 1 to {MAX_GAMMA}")
        if not 0 <= resume_timeout_s <= 86400:
            raise OptionsError(
                f"resume_timeout_s = {resume_timeout_s!r} is out of range: choose 0 to 86400 seconds"
            )
        if self._method.drafts and draft_model is None:
            raise OptionsError(
                f"method {method!r} drafts on the edge: give it a draft model, or use method 'ar'"
            )
        self._link = link
        self._draft_model = draft_model
        self._gamma = gamma
        self._resume_timeout_s = resume_timeout_s
        self._clock = clock
        self._busy = threading.Lock()
        self.stats = AnswerStats()

    def generate(
        self,
        prompt: Prompt,
        options: GenerationOptions | None = None,
        cancel: threading.Event | None = None,
        history: Sequence[int] = (),
    ) -> Iterator[list[int]]:
        """Yield verified token ids, one chunk a verdict, EOS not included.

        cancel: when set, the answer ends early. history: ids of the same answer that were verified before;
        they are replayed, not yielded, and the answer goes on as if nothing had happened. Raises LinkLost
        (after trying to resume, if asked to), ProtocolError, VersionMismatch, ModelError.
        """
        if not self._busy.acquire(blocking=False):
            raise OptionsError(
                "this decoder is in the middle of an answer: use one decoder an answer at a time"
            )
        session = EdgeSession(self._link, self._clock, cancel or threading.Event(), list(history))
        finish: Finish = "failed"
        try:
            for chunk in self._answer(session, prompt, options or GenerationOptions()):
                self.stats = session.stats("running")
                yield chunk
            finish = session.finish
        except (Cancelled, GeneratorExit) as stop:
            finish = "cancelled"
            if isinstance(stop, GeneratorExit):
                raise
        finally:
            session.close()
            self.stats = session.stats(finish)
            self._busy.release()

    def _answer(
        self, session: EdgeSession, prompt: Prompt, options: GenerationOptions
    ) -> Iterator[list[int]]:
        """Open and go on; after a lost link open again with what is verified, as long as that may take."""
        drafter = Drafter(self._draft_model, options) if self._method.drafts and self._draft_model else None
        sampled = self._method.recovery_at(options.temperature) is not Recovery.NOISE

        def propose(answer: list[int], room: int) -> tuple[Draft, Tensor | None]:
            assert drafter is not None
            if sampled:
                return drafter.sampled_chain(answer, min(self._gamma, room))
            if self._method.tree is not None:
                return drafter.tree(answer, self._method.tree, room), None
            ready = drafter.predicted_after(answer) if self._method.overlap == "continue" else 0
            return drafter.chain(answer, min(max(self._gamma, ready), room)), None

        def idle() -> bool:
            """While a verdict is out: draft on, a round and its bonus token at most."""
            if drafter is None or self._method.overlap == "idle" or not session.waiting:
                return False
            if drafter.predicted_after(session.expected) > self._gamma:
                return False
            return drafter.ahead()

        lost_at: float | None = None
        prefilled = False
        while True:
            try:
                welcome = self._link.ensure_connected(session.cancel.is_set)
                self._check_vocabulary(welcome)
                session.open(prompt, options, welcome, self._method, self._gamma)
                if drafter is not None and not prefilled:
                    session.measure_prefill(lambda: drafter.prefill(prompt))
                    prefilled = True
                while not session.finished:
                    if drafter is not None and session.wants_draft():
                        session.send_draft(propose)
                    chunk = session.receive(idle)
                    lost_at = None
                    if chunk:
                        yield chunk
                return
            except LinkLost as error:
                session.check_cancelled()
                now = self._clock()
                lost_at = now if lost_at is None else lost_at
                session.prepare_resume()
                # A verifier that forgot the session is there, it only needs the session again.
                patient = isinstance(error, SessionForgotten) and not session.fruitless
                if not patient and now - lost_at >= self._resume_timeout_s:
                    raise
                session.cancel.wait(_RETRY_PAUSE_S)
                session.check_cancelled()

    def _check_vocabulary(self, welcome: Welcome) -> None:
        model = self._draft_model
        if model is None or not self._method.drafts:
            return
        if welcome.vocab_size != model.vocab_size or welcome.vocabulary != model.vocabulary_fingerprint:
            raise ModelError(
                f"draft {model.path} ({model.vocab_size} tokens) and target {welcome.model} "
                f"({welcome.vocab_size} tokens) have different vocabularies: use two models of one family"
            )
