"""One session seen from the edge: what was verified, what is on its way, and what all of it cost.

Turns messages into chunks of verified tokens. Stale verdicts (of another session or round) are dropped; a
verifier that forgot the session, or lost a message, shows up as SessionForgotten.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.drafting import Draft
from specdec.errors import LinkLost, ProtocolError, SpecdecError
from specdec.link.channel import Link
from specdec.link.convert import floats_to_wire, row_from_wire, sampling_to_wire
from specdec.link.wire import (
    ERROR_SHUTDOWN,
    ERROR_UNKNOWN_SESSION,
    Close,
    Down,
    DraftUp,
    ErrorDown,
    More,
    Open,
    Opened,
    Ping,
    Pong,
    RowDown,
    SampledUp,
    Tokens,
    VerdictDown,
    Welcome,
)
from specdec.methods import Method
from specdec.models import Prompt
from specdec.options import GenerationOptions
from specdec.sampling.recovery import EdgeRecovery, Recovery
from specdec.stats import AnswerStats, Finish, Lane, RoundStats, Span
from specdec.verifying import path_to

_CANCEL_CHECK_S = 0.05
_PINGS_PER_TIMEOUT = 4
_MAX_FRUITLESS_RESUMES = 3


Propose = Callable[[list[int], int], tuple[Draft, Tensor | None]]
"""(verified answer, room) -> a draft, with q's rows [k, vocab] where rejection sampling needs them."""


class Cancelled(SpecdecError):
    """The caller's cancel event was set."""


class SessionForgotten(LinkLost):
    """The verifier is there but no longer has the session (restart, time-out) or a message got lost."""


@dataclass
class _Outstanding:
    """A draft on its way."""

    round: int
    draft: Draft
    sent_s: float
    sent_bytes: int
    draft_ms: float
    q: Tensor | None = None
    recovery: EdgeRecovery | None = None
    received_bytes: int = 0


class EdgeSession:
    """State of one answer on the edge. `answer` holds the verified ids, without EOS."""

    def __init__(
        self, link: Link, clock: Callable[[], float], cancel: threading.Event, history: list[int]
    ) -> None:
        self.answer = history
        self.cancel = cancel
        self.finish: Finish = "running"
        self._link = link
        self._clock = clock
        self._start = clock()
        self._replayed = len(history)
        self._number = 0
        self._limit = 0
        self._eos_ids: frozenset[int] = frozenset()
        self._stream = False
        self._recovery = Recovery.NOISE
        self._seed = 0
        self._fix: int | None = None
        self._opened = False
        self._opened_s = 0.0
        self._round = 0
        self._outstanding: _Outstanding | None = None
        self._last_heard = 0.0
        self._last_message = 0.0
        self._ping_sent: float | None = None
        self._ping_round = 0
        self._resumes = 0
        self._fruitless = 0
        self._length_at_open = 0
        self._prompt_bytes = 0
        self._prefill_ms = 0.0
        self._cloud_prefill_ms = 0.0
        self._first_token_s: float | None = None
        self._rounds: list[RoundStats] = []
        self._spans: list[Span] = []

    @property
    def finished(self) -> bool:
        """True once an EOS came or the answer is as long as it may be."""
        return self.finish != "running"

    @property
    def waiting(self) -> bool:
        """True while a draft is on its way and its verdict has not come."""
        return self._outstanding is not None

    def open(
        self, prompt: Prompt, options: GenerationOptions, welcome: Welcome, method: Method, gamma: int
    ) -> None:
        """Send the prompt, images and what is verified so far; the cloud starts its prefill."""
        stream = not method.drafts
        self._recovery = method.recovery_at(options.temperature)
        self._seed = options.seed
        self._fix = None
        self._number = self._link.next_session()
        self._limit = options.max_new_tokens
        self._eos_ids = frozenset(welcome.eos_ids)
        self._stream = stream
        self._opened = False
        self._outstanding = None
        self._ping_sent = None
        self._length_at_open = len(self.answer)
        message = Open(
            self._number,
            stream,
            sampling_to_wire(options),
            list(prompt.ids),
            list(prompt.images),
            list(self.answer),
            int(self._recovery),
            method.recovery_size,
            gamma if method.cloud_drafts else 0,
        )
        self._opened_s = self._last_heard = self._last_message = self._clock()
        self._prompt_bytes = self._link.send(message)

    def measure_prefill(self, prefill: Callable[[], None]) -> None:
        """Run the edge's prefill, while the cloud does its own."""
        started = self._clock()
        prefill()
        ended = self._clock()
        self._prefill_ms = (ended - started) * 1e3
        self._span("edge", "prefill", started, ended)
        self._last_heard = ended  # nobody could have listened meanwhile

    def room(self) -> int:
        """How many draft tokens in a row may still be of use: the verdict itself brings one more."""
        return max(0, self._limit - len(self.answer) - 1)

    def send_draft(self, propose: Propose) -> None:
        """Draft after the verified answer and send it. propose(answer, room): a draft not deeper than room.

        It returns q's rows, too, where both sides use rejection sampling.
        """
        started = self._clock()
        draft, q = propose(self.answer, self.room())
        drafted = self._clock()
        self._round += 1
        sent = self._link.send(self._draft_message(draft, q))
        self._fix = None
        self._outstanding = _Outstanding(self._round, draft, drafted, sent, (drafted - started) * 1e3, q)
        if draft.ids:
            self._span("edge", "draft", started, drafted)
        self._last_heard = max(self._last_heard, drafted)
        self._last_message = drafted

    def _draft_message(self, draft: Draft, q: Tensor | None) -> DraftUp | SampledUp:
        ids = list(draft.ids)
        if q is None:
            parents = None if draft.parents is None else list(draft.parents)
            return DraftUp(self._number, self._round, draft.base, ids, parents)
        told = q if self._recovery is Recovery.CLOUD else q[torch.arange(len(ids)), ids]
        return SampledUp(self._number, self._round, draft.base, ids, floats_to_wire(told), self._fix)

    def receive(self) -> list[int]:
        """Wait for the next message of this session; returns the ids it verified that were not known yet.

        Raises Cancelled, LinkLost after silence, SessionForgotten, or ProtocolError.
        """
        ping_every = self._link.reply_timeout_s / _PINGS_PER_TIMEOUT
        while True:
            self.check_cancelled()
            received = self._link.receive(min(_CANCEL_CHECK_S, ping_every))
            now = self._clock()
            if received is None:
                if now - self._last_heard > self._link.reply_timeout_s:
                    raise self._link.silent(now - self._last_heard)
                if now - self._last_message > self._link.round_timeout_s:
                    raise self._link.silent(now - self._last_message)
                if now - self._last_heard >= ping_every and self._ping_sent is None:
                    self._link.send(Ping(self._number))
                    self._ping_sent = now
                    self._ping_round = self._outstanding.round if self._outstanding else 0
                elif self._ping_sent is not None and now - self._ping_sent >= ping_every:
                    self._ping_sent = None
                continue
            self._last_heard = now
            chunk = self._take(received[0], received[1], now)
            if chunk is not None:
                self._last_message = now
                return chunk

    def check_cancelled(self) -> None:
        """Raise Cancelled if the caller wants no more."""
        if self.cancel.is_set():
            raise Cancelled("the answer was cancelled")

    def prepare_resume(self) -> None:
        """Count a lost link, and whether anything was verified since the one before."""
        self._resumes += 1
        self._fruitless = 0 if len(self.answer) > self._length_at_open else self._fruitless + 1
        self._length_at_open = len(self.answer)

    @property
    def fruitless(self) -> bool:
        """True after several resumes in a row that verified nothing."""
        return self._fruitless >= _MAX_FRUITLESS_RESUMES

    def close(self) -> None:
        """Tell the verifier that the session is over, if it can be told."""
        with contextlib.suppress(LinkLost):  # then it will time out over there
            self._link.send(Close(self._number))

    def stats(self, finish: Finish) -> AnswerStats:
        """What the answer has cost so far."""
        first = self._first_token_s
        return AnswerStats(
            tokens=len(self.answer) - self._replayed,
            rounds=tuple(self._rounds),
            prompt_bytes=self._prompt_bytes,
            prefill_ms=self._prefill_ms,
            cloud_prefill_ms=self._cloud_prefill_ms,
            ttft_ms=0.0 if first is None else (first - self._start) * 1e3,
            total_ms=(self._clock() - self._start) * 1e3,
            resumes=self._resumes,
            finish=finish,
            timeline=tuple(self._spans),
        )

    def _take(self, message: Down, size: int, now: float) -> list[int] | None:
        """One message -> newly verified ids, or None where it is not about this session's present."""
        if isinstance(message, Welcome) or message.session != self._number:
            if isinstance(message, ErrorDown) and message.session == 0:
                raise ProtocolError(f"the verifier refused a message: {message.message}")
            return None
        if isinstance(message, ErrorDown):
            raise self._refusal(message)
        if isinstance(message, Pong):
            self._take_pong(message)
            return None
        if isinstance(message, Opened):
            return self._take_opened(message, now)
        if isinstance(message, VerdictDown):
            return self._take_verdict(message, size, now)
        if isinstance(message, RowDown):
            return self._take_row(message, size, now)
        return self._take_tokens(message, size, now)

    def _take_opened(self, message: Opened, now: float) -> list[int] | None:
        if self._opened:
            return None
        self._opened = True
        self._limit = min(self._limit, message.limit)
        self._cloud_prefill_ms = message.verify_us / 1e3
        self._cloud_spans("prompt", "prefill", "first token", self._opened_s, now, message)
        return self._merge(self._length_at_open, [message.token], now)

    def _take_verdict(self, message: VerdictDown, size: int, now: float) -> list[int] | None:
        sent = self._outstanding
        if sent is None or message.round != sent.round:
            return None  # stale: a verdict on a draft that no longer counts
        if message.last > len(sent.draft.ids):
            raise ProtocolError(f"a verdict accepts node {message.last} of a draft of {len(sent.draft.ids)}")
        return self._finish_round(sent, message, message.token, size, now)

    def _take_row(self, message: RowDown, size: int, now: float) -> list[int] | None:
        """A rejection: recover the token here, or ask for more of the target's row."""
        sent = self._outstanding
        if sent is None or message.round != sent.round:
            return None
        if sent.q is None or message.last >= len(sent.draft.ids):
            raise ProtocolError(f"a verdict rejects token {message.last} of a draft of {len(sent.draft.ids)}")
        if sent.recovery is None:
            position = sent.draft.base + message.last
            sent.recovery = EdgeRecovery(sent.q[message.last].cpu(), self._seed, position)
        token = sent.recovery.token(row_from_wire(message))
        if token is None:
            sent.received_bytes += size
            sent.sent_bytes += self._link.send(More(self._number, self._round))
            self._last_message = now
            return None
        self._fix = token
        return self._finish_round(sent, message, token, size, now)

    def _finish_round(
        self, sent: _Outstanding, message: VerdictDown | RowDown, token: int, size: int, now: float
    ) -> list[int]:
        self._outstanding = None
        path = path_to(sent.draft, message.last)
        self._cloud_spans("draft", "verify", "verdict", sent.sent_s, now, message)
        self._rounds.append(
            RoundStats(
                drafted=len(sent.draft.ids),
                accepted=len(path),
                uplink_bytes=sent.sent_bytes,
                downlink_bytes=sent.received_bytes + size,
                draft_ms=sent.draft_ms,
                wait_ms=(now - sent.sent_s) * 1e3,
                verify_ms=message.verify_us / 1e3,
            )
        )
        return self._merge(sent.draft.base, [*(sent.draft.ids[node] for node in path), token], now)

    def _take_tokens(self, message: Tokens, size: int, now: float) -> list[int]:
        if message.base > len(self.answer):
            raise SessionForgotten("some tokens of the stream got lost on the way")
        since = self._last_message
        self._cloud_spans("", "decode", "token", max(since, now - _cloud_s(message)), now, message)
        accepted = max(0, min(len(message.ids) - 1, message.drafted))
        verify_ms = message.verify_us / 1e3
        self._rounds.append(
            RoundStats(message.drafted, accepted, 0, size, 0.0, (now - since) * 1e3, verify_ms)
        )
        return self._merge(message.base, list(message.ids), now)

    def _take_pong(self, message: Pong) -> None:
        """A heartbeat also tells whether a message got lost: the link keeps the order of messages."""
        if self._ping_sent is None:
            return
        self._ping_sent = None
        if self._stream:
            if message.answered > len(self.answer) + 1:
                raise SessionForgotten("some tokens of the stream got lost on the way")
            return
        asked = self._ping_round
        current = self._outstanding is not None and self._outstanding.round == asked
        if current and (message.received < asked or message.answered >= asked):
            raise SessionForgotten("a draft or its verdict got lost on the way")

    def _refusal(self, message: ErrorDown) -> SpecdecError:
        if message.code == ERROR_UNKNOWN_SESSION:
            return SessionForgotten("the verifier no longer knows the session: open it again")
        if message.code == ERROR_SHUTDOWN:
            self._link.reset()
            return LinkLost(f"the verifier at {self._link.address} is shutting down: start it again")
        return ProtocolError(f"the verifier refused: {message.message}")

    def _merge(self, base: int, ids: list[int], now: float) -> list[int]:
        """Join verified ids at `base` to the answer; returns the new ones. Notices EOS and the limit."""
        known = self.answer[base:]
        overlap = min(len(known), len(ids))
        if known[:overlap] != ids[:overlap]:
            raise ProtocolError("the verifier contradicts what it verified before: report this as a bug")
        fresh: list[int] = []
        for token in ids[overlap:]:
            if token in self._eos_ids:
                self.finish = "eos"
                break
            fresh.append(token)
            if len(self.answer) + len(fresh) >= self._limit:
                self.finish = "length"
                break
        self.answer.extend(fresh)
        if self._first_token_s is None and (fresh or self.finished):
            self._first_token_s = now
        return fresh

    def _cloud_spans(
        self,
        up: str,
        work: str,
        down: str,
        sent: float,
        now: float,
        message: Opened | VerdictDown | RowDown | Tokens,
    ) -> None:
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


def _cloud_s(message: Opened | VerdictDown | RowDown | Tokens) -> float:
    return (message.verify_us + message.queue_us) / 1e6
