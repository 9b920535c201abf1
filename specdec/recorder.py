"""Keeps the record of one answer: rounds, times, and who did what when. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable

from specdec.flight import Sent
from specdec.link.wire import Opened, RowDown, Tokens, VerdictDown
from specdec.stats import AnswerStats, Finish, Lane, RoundStats, Span

Timed = Opened | VerdictDown | RowDown | Tokens
"""Messages that tell how long the cloud took."""


class Recorder:
    """The record of one answer, from the moment it is made. Times are seconds of `clock`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._start = clock()
        self._first_token_s: float | None = None
        self._prompt_bytes = 0
        self._prefill_ms = 0.0
        self._cloud_prefill_ms = 0.0
        self._rounds: list[RoundStats] = []
        self._spans: list[Span] = []
        self.resumes = 0

    def prompt_sent(self, size: int) -> None:
        """The opening message went up."""
        self._prompt_bytes = size

    def edge_prefilled(self, started: float, ended: float) -> None:
        """The edge's own prefill."""
        self._prefill_ms = (ended - started) * 1e3
        self._span("edge", "prefill", started, ended)

    def drafted(self, started: float, ended: float) -> None:
        """One draft."""
        self._span("edge", "draft", started, ended)

    def opened(self, message: Opened, sent: float, now: float) -> None:
        """The cloud has the prompt."""
        self._cloud_prefill_ms = message.verify_us / 1e3
        self._exchange("prompt", "prefill", "first token", sent, now, message)

    def verdict(
        self, message: VerdictDown | RowDown, sent: Sent, accepted: int, size: int, now: float
    ) -> None:
        """A round is over; size: of the message that ended it."""
        self._exchange("draft", "verify", "verdict", sent.sent_s, now, message)
        self._rounds.append(
            RoundStats(
                drafted=len(sent.draft.ids),
                accepted=accepted,
                uplink_bytes=sent.sent_bytes,
                downlink_bytes=sent.received_bytes + size,
                draft_ms=sent.draft_ms,
                wait_ms=(now - sent.sent_s) * 1e3,
                verify_ms=message.verify_us / 1e3,
            )
        )

    def streamed(self, message: Tokens, size: int, since: float, now: float) -> None:
        """Tokens of a cloud that decodes alone; since: when the message before them came."""
        self._exchange("", "decode", "token", max(since, now - _cloud_s(message)), now, message)
        accepted = max(0, min(len(message.ids) - 1, message.drafted))
        wait_ms = (now - since) * 1e3
        self._rounds.append(
            RoundStats(message.drafted, accepted, 0, size, 0.0, wait_ms, message.verify_us / 1e3)
        )

    def first_token(self, now: float) -> None:
        """A verified token, or the end of the answer, is there; only the first one counts."""
        if self._first_token_s is None:
            self._first_token_s = now

    def stats(self, tokens: int, finish: Finish) -> AnswerStats:
        """What the answer has cost so far."""
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
            timeline=tuple(self._spans),
        )

    def _exchange(self, up: str, work: str, down: str, sent: float, now: float, message: Timed) -> None:
        """Spans of one exchange: the time not spent in the cloud is split between the two directions."""
        busy = min(_cloud_s(message), now - sent)
        link = (now - sent - busy) / 2
        computed = min(message.verify_us / 1e6, busy)
        if up:
            self._span("uplink", up, sent, sent + link)
        self._span("cloud", work, now - link - computed, now - link)
        self._span("downlink", down, now - link, now)

    def _span(self, lane: Lane, name: str, start: float, end: float) -> None:
        self._spans.append(Span(lane, name, start - self._start, end - self._start))


def _cloud_s(message: Timed) -> float:
    return (message.verify_us + message.queue_us) / 1e6
