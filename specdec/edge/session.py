# SPDX-License-Identifier: Apache-2.0
"""One session seen from the edge: verified tokens, drafts in flight, and their cost.

Turns messages into chunks of verified tokens. Stale verdicts (of another session or round) are dropped. If the
verifier forgot the session, or a message was lost, SessionForgotten is raised.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

from specdec.drafting import Draft, Proposal
from specdec.edge.flight import (
    DraftInFlight,
    DraftPreparation,
    Flight,
    LeavingDraft,
    PendingHints,
    RejectionRecovery,
)
from specdec.edge.liveness import Heartbeat, Resumes
from specdec.edge.protocol import (
    Cancelled,
    Opening,
    SessionForgotten,
    check_rounds,
    check_stream,
    refusal,
)
from specdec.edge.recorder import AnswerRecorder, RoundAccounting, RoundEnd
from specdec.edge.stats import AnswerStats, Finish
from specdec.errors import LinkLost, ProtocolError
from specdec.estimates.measured import Measured
from specdec.link.channel import Link
from specdec.link.traced import with_trace
from specdec.link.wire import (
    ERROR_SHUTDOWN,
    ERROR_TARGET,
    AloneUp,
    Close,
    Down,
    DraftUp,
    ErrorDown,
    HiddenUp,
    HintDown,
    More,
    Opened,
    PartUp,
    Pong,
    RowDown,
    SampledUp,
    Tokens,
    VerdictDown,
    Welcome,
)
from specdec.text.stop import StopText
from specdec.tracing import AnswerTrace
from specdec.verifying import path_to

_CANCEL_CHECK_S = 0.05
_ANY_NUMBER = 1 << 20


class EdgeSession:
    """State of one answer on the edge, and the effect of each message on it.

    Messages are built in `protocol`, rejections are resolved by `RejectionRecovery`, the link is watched by `liveness`,
    and costs are kept by `recorder`.

    hints: pending hints that no drafter has used yet. streams: whether the cloud decodes alone. most_drafted: most
    tokens per draft that the verifier accepts. most_parts: most parts per draft; 1: drafts are sent whole.
    """

    def __init__(
        self,
        link: Link,
        clock: Callable[[], float],
        cancel: threading.Event,
        history: list[int],
        measured: Measured,
        stop: StopText,
        trace: AnswerTrace | None = None,
    ) -> None:
        """stop: has consumed the history already. trace: None: no tracing."""
        self._verified = VerifiedAnswer(history, stop)
        self.cancel = cancel
        self.record = AnswerRecorder(clock, trace)
        self._link = link
        self._clock = clock
        self._measured = measured
        self._accounts = RoundAccounting(self.record, measured)
        self._trace = trace
        self._replayed = len(history)
        self._number = 0
        self.streams = False
        self.most_drafted = _ANY_NUMBER
        self.most_parts = 1
        self._leaving: LeavingDraft | None = None
        self._voided: tuple[tuple[float, int], ...] = ()
        self._in_flight = 1
        self._ahead = False
        self._rejections = RejectionRecovery()
        self._opened = False
        self._opened_s = 0.0
        self._round = 0
        self._flight = Flight()
        self._heartbeat = Heartbeat(link)
        self._resumes = Resumes()
        self.hints = PendingHints()

    @property
    def answer(self) -> list[int]:
        """The verified ids, without EOS."""
        return self._verified.ids

    @property
    def finish(self) -> Finish:
        """How the answer ended, or "running"."""
        return self._verified.finish

    @property
    def finished(self) -> bool:
        """True after an EOS, a stop string, or the last allowed token."""
        return self.finish != "running"

    @property
    def in_flight(self) -> int:
        """How many drafts are in flight."""
        return len(self._flight)

    @property
    def waiting_since(self) -> float | None:
        """When the oldest draft in flight was sent; None without one."""
        oldest = self._flight.oldest
        return None if oldest is None else oldest.sent_s

    @property
    def rejection_is_pending(self) -> bool:
        """True if a rejection was received in part."""
        return self._rejections.pending is not None

    @property
    def began(self) -> bool:
        """Whether the target has decided any part of the answer."""
        return bool(self.answer) or self.rejection_is_pending

    @property
    def alone_is_possible(self) -> bool:
        """True if the cloud can be told now to decode alone."""
        return self.quiet and not self.finished and not self._rejections.needed

    @property
    def quiet(self) -> bool:
        """True if no message can be due: everything that was sent has been answered."""
        return self._opened and not self.streams and not self._flight

    @property
    def expected(self) -> list[int]:
        """The answer if all drafts in flight are accepted."""
        return self._flight.expected(self.answer)

    @property
    def hinted(self) -> tuple[list[int], float] | None:
        """The answer that early exits expect after the next verdict, and their confidence (PendingHints.expected)."""
        return self.hints.expected(self._flight, self.answer)

    @property
    def brings_token(self) -> bool:
        """Whether a verdict that accepts everything in flight adds a bonus token."""
        return not (self._rejections.needed and self._ahead)

    def room_after(self, expected: list[int]) -> int:
        """Most tokens of a draft after `expected`; the verdict adds one more."""
        return max(0, self._verified.limit - len(expected) - 1)

    def may_send(self, expected: list[int]) -> bool:
        """Whether a draft after `expected` may be sent now: none is in flight, or one more is allowed and useful."""
        if not self._flight:
            # With rejection sampling the first token is not predictable: it would refute a draft sent before it.
            return self._opened or not self._rejections.needed
        if len(self._flight) >= self._in_flight or self.room_after(expected) == 0:
            return False
        return not expected or expected[-1] not in self._verified.eos_ids

    def open(self, opening: Opening) -> None:
        """Send the prompt and the tokens verified so far; the cloud starts its prefill."""
        method, options, welcome = opening.method, opening.options, opening.welcome
        self._rejections.open(method.recovery_at(options.temperature), options.seed)
        self._number = self._link.next_session()
        self._verified.limit = options.max_new_tokens
        self._verified.eos_ids = frozenset(welcome.eos_ids)
        self.most_drafted = welcome.allowed.draft_nodes or _ANY_NUMBER
        self.most_parts = max(1, welcome.parts)
        self._leaving, self._voided = None, ()
        self.streams = method.cloud == "stream"
        self._opened = False
        self._in_flight = method.in_flight
        self._ahead = method.ahead
        self._flight.clear()
        self.record.resumes += self._resumes.opened(len(self.answer))
        message = opening.message(
            self._number,
            self.answer,
            pending=self._rejections.pending is not None,
            hints_pay=self._measured.hints_pay,
        )
        self.hints.clear()
        self._round = 0
        self._opened_s = self._clock()
        tokens = len(message.ids) + len(self.answer)
        self._heartbeat.restart(self._opened_s, welcome.allowed.timeout_ms / 1e3, tokens)
        if self._trace is not None:
            message = with_trace(message, self._trace.opening(self._opened_s))
        self.record.prompt_sent(self._link.send(message))

    def measure_prefill(self, prefill: Callable[[], None]) -> None:
        """Run and time the edge's prefill, which overlaps the cloud's."""
        started = self._clock()
        prefill()
        ended = self._clock()
        self.record.edge_prefilled(started, ended)
        self._heartbeat.heard(ended)  # this thread could not listen meanwhile

    def sent_of(self, base: int, ids: Sequence[int]) -> int:
        """How many of `ids`, a draft at answer length `base`, were sent already as parts of the unfinished draft."""
        leaving = self._leaving
        if leaving is None or (leaving.base, leaving.epoch) != (base, self._flight.epoch):
            return 0
        return len(leaving.ids) if list(ids[: len(leaving.ids)]) == leaving.ids else 0

    @property
    def parts_left(self) -> int:
        """How many more parts of the unfinished draft may be sent before its last one."""
        return self.most_parts - 1 - (0 if self._leaving is None else len(self._leaving.messages))

    def send_part(self, proposal: Proposal, *, first: bool) -> None:
        """Send a part of a draft that is not complete yet. `send_draft` sends the rest and requests the verdict. first:
        this part starts a new draft and voids parts of any other.
        """
        began, draft = self._clock(), proposal.draft
        leaving = self._leaving
        if leaving is None or first:
            self._void()
            self._round += 1
            leaving = self._leaving = LeavingDraft(draft.base, self._flight.epoch)
        part = PartUp(len(leaving.messages), True, self._message(proposal))
        leaving.messages += ((began, self._link.send(part)),)
        leaving.ids.extend(draft.ids)
        self._rejections.told()
        self._measured.uplink.handed_over(self._clock() - began)

    def _message(self, proposal: Proposal) -> DraftUp | SampledUp:
        """The wire message for a draft in this round."""
        draft, number, epoch = proposal.draft, self._number, self._flight.epoch
        if proposal.q is not None:
            return self._rejections.message(number, self._round, draft, proposal.q, epoch)
        parents = None if draft.parents is None else list(draft.parents)
        return DraftUp(number, self._round, draft.base, list(draft.ids), parents, epoch)

    def send_draft(self, proposal: Proposal, preparation: DraftPreparation) -> None:
        """Send a draft that continues the expected answer, or the rest of it if parts were sent before."""
        draft, q = proposal.draft, proposal.q
        sent, leaving = self.sent_of(draft.base, draft.ids), self._leaving
        if leaving is None or not sent:
            self._void()
            self._round += 1
            self._send_round(self._message(proposal), proposal, preparation)
            return
        self._leaving = None
        ids = draft.ids[sent:]
        rest = Proposal(Draft(draft.base + sent, ids), ids, None if q is None else q[sent:])
        last = PartUp(len(leaving.messages), False, self._message(rest))
        self._send_round(last, proposal, preparation, leaving.messages)

    def _void(self) -> None:
        """Abandon the draft that was sent in part; its messages are counted with the next draft."""
        if self._leaving is not None:
            self._voided += self._leaving.messages
            self._leaving = None

    def go_alone(self, speculate: int) -> None:
        """Let the cloud decode alone until the next draft. speculate: draft tokens per round of its own draft model.

        If the cloud decodes alone already, this changes only `speculate`.
        """
        self._round += 1
        self._void()
        self._link.send(AloneUp(self._number, self._round, speculate))
        if not self.streams:
            self.streams = True
            self._heartbeat.progressed(self._clock())

    def ping(self) -> None:
        """Send a ping, to measure the link."""
        self._heartbeat.ask(self._clock(), self._number, self._round)

    def allow_in_flight(self, drafts: int) -> None:
        """Set how many drafts may be in flight."""
        self._in_flight = drafts

    def send_hidden(self, data: bytes, of_prompt: bool) -> None:
        """Layer split: send the hidden states of the prompt, or of the answer's last token."""
        if of_prompt:
            self.record.prompt_sent(self._link.send(HiddenUp(self._number, 0, data)))
            return
        self._round += 1
        nothing = Proposal(Draft(len(self.answer), ()), ())
        self._send_round(HiddenUp(self._number, self._round, data), nothing, DraftPreparation(0.0))

    def _send_round(
        self,
        message: DraftUp | SampledUp | HiddenUp | PartUp,
        proposal: Proposal,
        preparation: DraftPreparation,
        parts: tuple[tuple[float, int], ...] = (),
    ) -> None:
        now = self._clock()
        if self._trace is not None:
            began_s = now - preparation.draft_ms / 1e3
            trace = self._trace.sent(self._round, began_s, now, len(proposal.draft.ids))
            message = message if isinstance(message, HiddenUp) else with_trace(message, trace)
        size = self._link.send(message)
        if not self._flight:  # no reply could be due, and this thread was not listening
            self._heartbeat.heard(now)
        self._rejections.told()
        flying = DraftInFlight(self._round, proposal, ((now, size),), preparation)
        flying.parts, flying.voided, self._voided = parts, self._voided, ()
        flying.behind, self.streams = self.streams or len(self._flight) > 0, False
        self._flight.add(flying)
        self._heartbeat.progressed(now)

    def poll(self, wait_s: float = 0.0) -> list[int] | None:
        """Take a message that is queued or arrives within `wait_s`: returns its new verified ids, or None if none came.
        Raises as `receive`.
        """
        while True:
            self.check_cancelled()
            received = self._link.receive(wait_s)
            if received is None:
                self._mind_silence()
                return None
            message, size = received
            chunk = self._hear(message, size)
            if chunk is not None:
                return chunk

    def receive(self) -> list[int]:
        """Wait for the next message of this session; returns its new verified ids.

        Raises Cancelled, LinkLost after silence, SessionForgotten, or ProtocolError.
        """
        wait_s = min(_CANCEL_CHECK_S, self._heartbeat.interval_s)
        while (chunk := self.poll(wait_s)) is None:
            pass
        return chunk

    def _hear(self, message: Down, size: int) -> list[int] | None:
        now = self._clock()
        if not isinstance(message, Welcome) and message.session == self._number:
            self._heartbeat.heard(now)  # messages of other sessions do not show that this one is alive
        chunk = self._take(message, size, now)
        if chunk is not None:
            self._heartbeat.progressed(now)
        if self.streams and not self.finished:
            self._heartbeat.keep_alive(now, self._number, self._round)
        return chunk

    def _mind_silence(self) -> None:
        oldest = self._flight.oldest
        round_ = self._round if self.streams else 0 if oldest is None else oldest.round
        self._heartbeat.mind(self._clock(), self._number, round_)

    def check_cancelled(self) -> None:
        """Raise Cancelled if the caller has cancelled the answer."""
        if self.cancel.is_set():
            raise Cancelled("the answer was cancelled")

    def prepare_resume(self, busy: bool = False) -> None:
        """Count a lost link, and whether anything was verified since the last one. busy: the link is not lost, so
        nothing is counted.

        Also closes the session, if the link still works: nothing will use it again.
        """
        self.close()
        if not busy:
            self._resumes.lost(len(self.answer))

    @property
    def fruitless(self) -> bool:
        """True after several resumes in a row that verified nothing."""
        return self._resumes.fruitless

    def close(self) -> None:
        """Tell the verifier that the session is over, if the link works."""
        with contextlib.suppress(LinkLost):  # the session then times out on the verifier
            self._link.send(Close(self._number))

    def stats(self, finish: Finish) -> AnswerStats:
        """Statistics of the answer so far."""
        return self.record.stats(len(self.answer) - self._replayed, finish)

    def _take(self, message: Down, size: int, now: float) -> list[int] | None:
        """Process one message; returns newly verified ids, or None if it is stale or brings none."""
        if isinstance(message, ErrorDown) and message.session in (0, self._number):
            if message.session and message.code in (ERROR_SHUTDOWN, ERROR_TARGET):
                self._link.reset()
            raise refusal(message, self._link.address)
        if isinstance(message, Welcome) or message.session != self._number:
            return None
        if isinstance(message, Pong):
            self._take_pong(message, now)
            return None
        if isinstance(message, Opened):
            return self._take_opened(message, now)
        if isinstance(message, VerdictDown):
            return self._take_verdict(message, size, now)
        if isinstance(message, RowDown):
            return self._take_row(message, size, now)
        if isinstance(message, HintDown):
            return self._take_hint(message, size, now)
        return self._take_tokens(message, size, now) if isinstance(message, Tokens) else None

    def _take_opened(self, message: Opened, now: float) -> list[int] | None:
        if self._opened:
            return None
        self._opened = True
        self._heartbeat.opened()
        self._verified.limit = min(self._verified.limit, message.limit)
        self._accounts.opened(message, self._opened_s, now)
        if message.token is not None:
            return self._merge(self._resumes.length_at_open, [message.token, *message.forced], now)
        if self._rejections.pending is None:
            raise ProtocolError("the verifier opened the session without a token: report this as a bug")
        # The rejection was received in part. Drawing afresh would be biased towards outcomes that need no more of the
        # row. All random numbers are functions of the position, so the same draft is rejected in the same way again.
        self.send_draft(self._rejections.pending.proposal, DraftPreparation(0.0))
        return []

    def _take_verdict(self, message: VerdictDown, size: int, now: float) -> list[int] | None:
        sent = self._flight.judged(message.round)
        if sent is None:
            return None  # stale: the draft is no longer in flight
        whole = message.last == len(sent.draft.ids)
        if message.last > len(sent.draft.ids) or (message.token is None and not whole):
            raise ProtocolError(f"a verdict accepts node {message.last} of a draft of {len(sent.draft.ids)}")
        return self._finish_round(sent, message, message.token, size, now, message.forced)

    def _take_row(self, message: RowDown, size: int, now: float) -> list[int] | None:
        """A rejection: recover the token here, or request more of the target's row."""
        sent = self._flight.judged(message.round)
        if sent is None:
            return None
        token = self._rejections.take(sent, message)
        if token is None:
            sent.received_bytes += size
            sent.messages += ((now, self._link.send(More(self._number, sent.round))),)
            self._heartbeat.progressed(now)
            return None
        return self._finish_round(sent, message, token, size, now)

    def _take_hint(self, message: HintDown, size: int, now: float) -> list[int] | None:
        if not self.hints.take(self._flight, message, size):
            return None
        self.record.hint(message.at_us, size, now)
        return []

    def _finish_round(
        self,
        sent: DraftInFlight,
        message: VerdictDown | RowDown,
        token: int | None,
        size: int,
        now: float,
        forced: Sequence[int] = (),
    ) -> list[int]:
        """forced: tokens after `token` that a grammar leaves no choice about."""
        self._rejections.settled()
        self.hints.clear()
        refuted = self._flight.settle(message.last, token)
        path = path_to(sent.draft, message.last)
        ids = [sent.draft.ids[node] for node in path]
        verified = ids if token is None else [*ids, token, *forced]
        gained = max(0, sent.draft.base + len(verified) - len(self.answer))
        foreseen = sent.was_foreseen(self.answer)
        self._accounts.verdict(
            RoundEnd(message, size, now, sent, tuple(refuted), len(path), tuple(verified), gained, foreseen)
        )
        return self._merge(sent.draft.base, verified, now)

    def _take_tokens(self, message: Tokens, size: int, now: float) -> list[int]:
        if message.base > len(self.answer):
            raise SessionForgotten("some tokens of the stream were lost")
        self._accounts.streamed(message, size, self._heartbeat.last_progress_s, now)
        return self._merge(message.base, list(message.ids), now)

    def _take_pong(self, message: Pong, now: float) -> None:
        """A pong also shows whether a message was lost, because the link keeps messages in order."""
        answered = self._heartbeat.answered()
        if answered is None:
            return
        asked_s, asked = answered
        oldest = self._flight.oldest
        if self.streams:
            self._measured.pinged(now - asked_s)
            check_stream(message, asked, len(self.answer))
        else:
            check_rounds(message, asked, None if oldest is None else oldest.round)

    def _merge(self, base: int, ids: list[int], now: float) -> list[int]:
        fresh = self._verified.merge(base, ids)
        if fresh or self.finished:
            self.record.first_token(now)
        return fresh


class VerifiedAnswer:
    """The verified part of an answer. It only grows, and detects the end.

    ids: verified tokens, without EOS. finish: "running", or how the answer ended. limit: most tokens.
    """

    def __init__(self, history: list[int], stop: StopText) -> None:
        """history: tokens verified before; `stop` has consumed them already."""
        self.ids = history
        self.finish: Finish = "stop" if stop.found else "running"
        self.limit = 0
        self.eos_ids: frozenset[int] = frozenset()
        self._stop = stop

    def merge(self, base: int, ids: Sequence[int]) -> list[int]:
        """Merge verified ids that begin at `base`; returns the new ones. Detects EOS, stop strings and the limit.

        Raises ProtocolError if they contradict earlier verified ids.
        """
        known = self.ids[base:]
        overlap = min(len(known), len(ids))
        if known[:overlap] != list(ids[:overlap]):
            raise ProtocolError("the verifier contradicts tokens that it verified before: report this as a bug")
        fresh: list[int] = []
        for token in ids[overlap:]:
            if token in self.eos_ids:
                self.finish = "eos"
                break
            fresh.append(token)
            if self._stop.push(token):
                self.finish = "stop"
                break
            if len(self.ids) + len(fresh) >= self.limit:
                self.finish = "length"
                break
        self.ids.extend(fresh)
        return fresh
