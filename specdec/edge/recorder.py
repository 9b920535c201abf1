# SPDX-License-Identifier: Apache-2.0
"""Keeps the record of one answer: rounds, times and spans. Decides nothing.

RoundAccounting also adds each exchange with the verifier to the measurements kept over all answers (Measured).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from specdec.edge.flight import DraftInFlight
from specdec.edge.stats import AnswerStats, Finish, Lane, RoundStats, Span
from specdec.estimates.measured import Measured
from specdec.link.wire import Opened, RowDown, Tokens, VerdictDown
from specdec.tracing import AnswerTrace

Timed = Opened | VerdictDown | RowDown | Tokens
"""Messages that report the cloud's computing time."""

_ADJACENT_S = 2e-4
_LATE_S = 1e-3


@dataclass(frozen=True)
class RoundEnd:
    """A verdict and its result.

    Attributes:
        message: The verdict.
        size: Its bytes.
        now_s: When it arrived.
        sent: The draft that it judged.
        refuted: Drafts in flight that it invalidated.
        accepted: Accepted nodes.
        verified: Ids of these nodes, and the target's next token.
        gained: How many of `verified` are new.
        foreseen: The draft contradicted the verified answer already, so it took no forward pass.
    """

    message: VerdictDown | RowDown
    size: int
    now_s: float
    sent: DraftInFlight
    refuted: tuple[DraftInFlight, ...]
    accepted: int
    verified: tuple[int, ...]
    gained: int
    foreseen: bool = False


class AnswerRecorder:
    """The record of one answer, starting at construction. Times are seconds of `clock`."""

    def __init__(self, clock: Callable[[], float], trace: AnswerTrace | None = None) -> None:
        """trace: also receives the events as spans; None: no tracing."""
        self._clock = clock
        self._trace = trace
        self._start = clock()
        self._first_token_s: float | None = None
        self._prompt_bytes = 0
        self._prefill_ms = 0.0
        self._cloud_prefill_ms = 0.0
        self._rounds: list[RoundStats] = []
        self._spans: list[Span] = []
        self._of_edge: list[int] = []
        self._last_draft: int | None = None
        self._draft_forwards = 0
        self._predrafts = 0
        self._predraft_hits = 0
        self._hints: list[tuple[float, int, float]] = []
        self._mode = self._why = ""
        self._token_s: float | None = None
        self._round_at_s: float | None = None
        self.resumes = 0
        self.opened_s: float | None = None

    def explain(self, mode: str, why: str, token_s: float | None, anew: bool) -> None:
        """Set the plan of the coming rounds, its reason, and its predicted seconds per token. anew: the next round
        includes the change of plan, so it is not compared with the prediction.
        """
        self._mode, self._why, self._token_s = mode, why, token_s
        if anew:
            self._round_at_s = None

    def prompt_sent(self, size: int) -> None:
        """An opening message was sent, with the prompt or its hidden states."""
        self._prompt_bytes += size

    def edge_prefilled(self, started: float, ended: float) -> None:
        """The edge's prefill ran."""
        self._prefill_ms = (ended - started) * 1e3
        self._span("edge", "prefill", started, ended)

    def drafted(self, name: str, started: float, ended: float, forwards: int = 1) -> None:
        """The edge ran forward passes without a break. Adjacent calls with one name become one span."""
        self._draft_forwards += forwards
        if self._last_draft is not None:
            last = self._spans[self._last_draft]
            if last.name == name and started - self._start - last.end_s < _ADJACENT_S:
                self._spans[self._last_draft] = replace(last, end_s=ended - self._start)
                return
        self._last_draft = len(self._spans)
        self._span("edge", name, started, ended)

    def computed_between(self, began: float, ended: float) -> float:
        """Seconds between `began` and `ended` in which the edge was computing."""
        computed = 0.0
        for place in reversed(self._of_edge):
            span = self._spans[place]
            overlap = min(span.end_s, ended - self._start) - max(span.start_s, began - self._start)
            if overlap <= 0.0 and span.end_s + self._start < began:
                break
            computed += max(0.0, overlap)
        return computed

    @property
    def prompt_bytes(self) -> int:
        """Bytes of the opening messages so far."""
        return self._prompt_bytes

    @property
    def rounds(self) -> int:
        """Rounds so far."""
        return len(self._rounds)

    def _against_promise(self, gained: int, now: float) -> tuple[float, float]:
        """Milliseconds since the previous round ended, and milliseconds predicted for `gained` tokens; zeros without a
        prediction.
        """
        before_s, self._round_at_s = self._round_at_s, now
        if before_s is None or self._token_s is None or not gained:
            return 0.0, 0.0
        return (now - before_s) * 1e3, self._token_s * gained * 1e3

    @property
    def last_drafted(self) -> int:
        """Draft tokens of the last round, drafted by either side."""
        return self._rounds[-1].drafted

    @property
    def last_cloud_s(self) -> float:
        """Cloud seconds of the last round, queueing included; 0 if it ran no forward pass."""
        last = self._rounds[-1]
        return (last.verify_ms + last.queue_ms) / 1e3 if last.verify_ms > 0.0 else 0.0

    def predrafted(self, hit: bool) -> None:
        """A verdict came while a pre-draft existed. hit: the pre-draft is still valid."""
        self._predrafts += 1
        self._predraft_hits += hit

    def opened(self, message: Opened, sent: float, now: float) -> None:
        """The cloud has computed the prompt."""
        if self._trace is not None:
            self._trace.opened(now)
        self.opened_s = now
        self._cloud_prefill_ms = message.verify_us / 1e3
        self._exchange("prefill", "first token", ((sent, self._prompt_bytes),), 0, now, message)

    def verdict(self, end: RoundEnd) -> None:
        """A round has ended."""
        message, sent, size, now = end.message, end.sent, end.size, end.now_s
        self._exchange("verify", "verdict", sent.messages, size, now, message)
        self._place_hints(now, message, sent)
        for left, bytes_up in sent.parts:
            self._span("uplink", "part", left, sent.sent_s, bytes_up)
        for left, bytes_up in sent.voided:
            self._span("uplink", "refuted part", left, sent.sent_s, bytes_up)
        wasted = [one for draft in end.refuted for one in (*draft.voided, *draft.parts, *draft.messages)]
        for left, bytes_up in wasted:
            self._span("uplink", "refuted draft", left, now, bytes_up)
        took_ms, promised_ms = self._against_promise(end.gained, now)
        self._rounds.append(
            RoundStats(
                drafted=len(sent.draft.ids),
                accepted=end.accepted,
                uplink_bytes=sent.sent_bytes + sum(bytes_up for _, bytes_up in wasted),
                downlink_bytes=sent.received_bytes + size,
                draft_ms=sent.preparation.draft_ms,
                wait_ms=(now - sent.sent_s) * 1e3,
                verify_ms=message.verify_us / 1e3,
                gained=end.gained,
                ready=sent.preparation.ready,
                sync_ms=sent.preparation.sync_ms,
                hints=sent.hints,
                mode=self._mode,
                why=self._why,
                queue_ms=message.queue_us / 1e3,
                batch=message.batch,
                took_ms=took_ms,
                promised_ms=promised_ms,
            )
        )
        if self._trace is not None:
            refuted = [one.round for one in end.refuted]
            self._trace.judged(sent.round, now, self._clock(), end.accepted, end.gained, refuted)

    def streamed(self, message: Tokens, size: int, since: float, now: float) -> None:
        """Tokens from a cloud that decodes alone. since: when the previous message arrived."""
        if self._trace is not None:
            self._trace.streamed(since, now, len(message.ids))
        began = max(since, now - _cloud_s(message))
        self._exchange("decode", "token", ((began, 0),), size, now, message)
        accepted = max(0, min(len(message.ids) - 1, message.drafted))
        wait_ms = (now - since) * 1e3
        took_ms, promised_ms = self._against_promise(len(message.ids), now)
        self._rounds.append(
            RoundStats(
                message.drafted,
                accepted,
                0,
                size,
                0.0,
                wait_ms,
                message.verify_us / 1e3,
                len(message.ids),
                mode=self._mode,
                why=self._why,
                queue_ms=message.queue_us / 1e3,
                batch=message.batch,
                took_ms=took_ms,
                promised_ms=promised_ms,
            )
        )

    def first_token(self, now: float) -> None:
        """A verified token, or the end of the answer, has arrived; only the first call counts."""
        if self._first_token_s is None:
            self._first_token_s = now

    def stats(self, tokens: int, finish: Finish) -> AnswerStats:
        """Statistics of the answer so far."""
        first = self._first_token_s
        return AnswerStats(
            tokens=tokens,
            rounds=tuple(self._rounds),
            prompt_bytes=self._prompt_bytes,
            prefill_ms=self._prefill_ms,
            cloud_prefill_ms=self._cloud_prefill_ms,
            ttft_ms=0.0 if first is None else (first - self._start) * 1e3,
            total_ms=(self._clock() - self._start) * 1e3,
            resumes=self.resumes,
            finish=finish,
            draft_forwards=self._draft_forwards,
            predrafts=self._predrafts,
            predraft_hits=self._predraft_hits,
            timeline=tuple(self._spans),
        )

    def hint(self, at_us: int, size: int, now: float) -> None:
        """A hint arrived. at_us: when it was sent, after the start of the forward pass. Its span is added once that
        start is known.
        """
        self._hints.append((at_us / 1e6, size, now))

    def _place_hints(self, now: float, message: Timed, sent: DraftInFlight) -> None:
        exchange = now - sent.messages[0][0]
        began = now - (exchange - min(_cloud_s(message), exchange)) / 2 - message.verify_us / 1e6
        for after, size, came in self._hints:
            self._span("downlink", "hint", min(began + after, came), came, size)
        self._hints.clear()

    def _exchange(
        self, work: str, down: str, up: tuple[tuple[float, int], ...], size: int, now: float, message: Timed
    ) -> None:
        """Add the spans of one exchange. Time not spent in the cloud is split evenly between the two directions.

        up: (time sent, bytes) of each message, in order; one of 0 bytes was not sent at all.
        """
        first = up[0][0]
        busy = min(_cloud_s(message), now - first)
        link = (now - first - busy) / 2
        computed = min(message.verify_us / 1e6, busy)
        for left, bytes_up in up:
            if bytes_up:
                self._span(
                    "uplink",
                    "prompt" if work == "prefill" else "draft",
                    left,
                    min(left + link, now),
                    bytes_up,
                )
        self._span("cloud", work, now - link - computed, now - link)
        self._span("downlink", down, now - link, now, size)

    def _span(self, lane: Lane, name: str, start: float, end: float, size: int = 0) -> None:
        if lane == "edge":
            self._of_edge.append(len(self._spans))
        self._spans.append(Span(lane, name, start - self._start, end - self._start, size))


class RoundAccounting:
    """Writes to one answer's AnswerRecorder and to the edge's Measured. Times are seconds, sizes bytes."""

    def __init__(self, record: AnswerRecorder, measured: Measured) -> None:
        self._record = record
        self._measured = measured
        self._said_s: float | None = None

    def opened(self, message: Opened, sent: float, now: float) -> None:
        """The cloud has computed the prompt."""
        self._record.opened(message, sent, now)
        took_s = max(0.0, now - sent - _cloud_s(message))
        self._measured.opened(took_s)
        if not self._record.computed_between(now - _LATE_S, now):  # otherwise it may have come before the poll
            self._measured.uplink.opened(self._record.prompt_bytes, took_s)
        half_s = (self._measured.rtt_s or 0.0) / 2
        self._said_s = min(now - half_s, sent + half_s + _cloud_s(message))

    def verdict(self, end: RoundEnd) -> None:
        """A round has ended."""
        self._record.verdict(end)
        self._said_s = None
        message, sent, now = end.message, end.sent, end.now_s
        sent.compare(end.verified, end.accepted, self._measured)
        if end.foreseen:
            return
        if not sent.behind:
            messages = (*sent.voided, *sent.parts, *sent.messages)
            self._measured.uplink.exchanged(messages, sent.token_bytes, now - _cloud_s(message))
        self._measured.draft_tokens.add(len(sent.draft.ids))
        rtt_s = max(0.0, now - sent.sent_s - _cloud_s(message))
        opened_s = self._record.opened_s
        # A draft sent with the prompt waited for the prefill, which no later draft does.
        waited = opened_s is not None and sent.sent_s >= opened_s and not sent.behind
        rows, queue_s = len(sent.draft.ids) + 1, message.queue_us / 1e6 if waited else None
        verify_s, judged_s = message.verify_us / 1e6, now - rtt_s / 2
        beside_s = self._record.computed_between(judged_s - verify_s, judged_s)
        self._measured.exchanged(rows, verify_s, rtt_s, queue_s, beside_s)

    def streamed(self, message: Tokens, size: int, since: float, now: float) -> None:
        """Tokens from a cloud that decodes alone. since: when the previous message arrived."""
        self._record.streamed(message, size, since, now)
        if message.ids:
            verify_s, queue_s = message.verify_us / 1e6, message.queue_us / 1e6
            said_s = self._said(_cloud_s(message), since, now)
            draft_s = min(message.draft_us / 1e6, verify_s)
            beside_s = self._record.computed_between(said_s - verify_s + draft_s, said_s)
            self._measured.streamed(len(message.ids), verify_s, message.drafted, queue_s, beside_s, draft_s)

    def _said(self, cloud_s: float, since: float, now: float) -> float:
        """When the cloud sent a message that took `cloud_s`; the message may have arrived before the edge polled."""
        said_s = now - (self._measured.rtt_s or 0.0) / 2
        looked_late = now - since < cloud_s or self._record.computed_between(since, now) > 0.0
        if looked_late and self._said_s is not None:
            said_s = min(said_s, self._said_s + cloud_s)
        self._said_s = said_s
        return said_s


def _cloud_s(message: Timed) -> float:
    return (message.verify_us + message.queue_us) / 1e6
