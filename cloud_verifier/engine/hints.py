# SPDX-License-Identifier: Apache-2.0
"""Hints on their way out: one small queue for each forward pass, emptied while the pass goes on.

Hints that still wait when the last layer is done are dropped, so that a verdict is never late. On a GPU, exits run
beside the layers (specdec.verifying.hints.side_stream), and hints are sent as they get ready. An exit that fails stops
the hints of its session and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from cloud_verifier.logs import EventLog
from cloud_verifier.observing.counts import Histogram
from specdec.drafting import Draft, select_nodes
from specdec.link.wire import DraftUp, HintDown, Open
from specdec.models.runner import LayerObserver
from specdec.options import GenerationOptions
from specdec.verifying import Verifier
from specdec.verifying.hints.hints import DraftHints, ExitOutcome, HintMaker
from specdec.verifying.hints.side_stream import SideStream

BY_CONFIDENCE, FIRST_COME = 0, 1
"""Orders of sending (Open.hint_order)."""

A_LAYER = 2
"""At most this many hints are sent after one layer."""

SHARE = 0.05
"""Largest share of a shared forward pass that may be spent on hints."""

Key = tuple[int, int]
"""What a hint predicts: (last accepted node, next token)."""


class HintQueue:
    """Hints of one round. Each is sent once at most, and no more than `limit` in all."""

    def __init__(self, limit: int, order: int) -> None:
        """order: BY_CONFIDENCE or FIRST_COME."""
        self._left = limit
        self._by_confidence = order == BY_CONFIDENCE
        self._waiting: dict[Key, ExitOutcome] = {}
        self._sent: set[Key] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, outcomes: list[ExitOutcome]) -> None:
        """Add hints; a waiting one is replaced in place by the newer prediction for the same outcome."""
        for outcome in outcomes:
            key = (outcome.last, outcome.token)
            if key not in self._sent:
                self._waiting[key] = outcome

    def take(self, count: int) -> list[ExitOutcome]:
        """The next hints to send, `count` at most."""
        taken: list[ExitOutcome] = []
        while self._waiting and self._left and len(taken) < count:
            key = next(iter(self._waiting))
            if self._by_confidence:
                key = max(self._waiting, key=lambda key: self._waiting[key].confidence)
            taken.append(self._waiting.pop(key))
            self._sent.add(key)
            self._left -= 1
        return taken


class HintShare:
    """Decides which forward passes make hints: always those of a single session; shared ones only within SHARE."""

    def __init__(self, clock: Callable[[], float], spent: Histogram) -> None:
        """spent: collects the seconds spent on hints in each forward pass that had any."""
        self._clock = clock
        self._spent = spent
        self._forward_s = 0.0
        self._hints_s = 0.0
        self._spent_s = 0.0

    def allowed(self, sessions: int) -> int:
        """How many of the sessions that share a forward pass may have hints."""
        if sessions == 1:
            return 1
        if not self._hints_s:
            return 1  # to measure what they cost
        return int(SHARE * self._forward_s / self._hints_s)

    def timed(self, observer: LayerObserver) -> LayerObserver:
        """The observer, with the time that it takes counted."""

        def after_layer(layer: int, hidden: Tensor) -> None:
            began = self._clock()
            observer(layer, hidden)
            self._spent_s += self._clock() - began

        return after_layer

    def ran(self, seconds: float, observed: int) -> None:
        """A forward pass took `seconds`, including hints for `observed` sessions."""
        self._forward_s = _latest(self._forward_s, seconds - self._spent_s)
        if observed:
            self._hints_s = _latest(self._hints_s, self._spent_s / observed)
            self._spent.add(self._spent_s)
        self._spent_s = 0.0


def _latest(mean: float, value: float) -> float:
    """An exponential mean over about the last ten values."""
    return value if not mean else 0.9 * mean + 0.1 * value


class SessionHinting:
    """The hints of one session, round by round."""

    def __init__(
        self,
        maker: HintMaker,
        message: Open,
        options: GenerationOptions,
        send: Callable[[HintDown], None],
        log: EventLog,
        clock: Callable[[], float],
    ) -> None:
        """message: the Open message that asked for hints. send: called with each hint. log: bound to this session."""
        self._layers = frozenset(maker.layers)
        self._beside = maker.beside
        self._last_layer = maker.model.runner.layer_count - 1
        self._message = message
        self._send = send
        self._log = log
        self._clock = clock
        self._works = True
        try:
            self._hints = maker.session(message.ids, options, message.history)
        except Exception as error:
            self._fail(error)

    def observer(self, verifier: Verifier, message: DraftUp) -> LayerObserver | None:
        """An observer of the forward pass that starts now; None if part of the verdict is known or exits failed."""
        started = self._clock()
        if not self._works or message.base != len(verifier.answer):
            return None
        queue = HintQueue(self._message.hints, self._message.hint_order)
        watched: tuple[DraftHints, list[int]] | None = None

        def take(outcomes: list[ExitOutcome]) -> None:
            assert watched is not None
            queue.put(outcomes)
            for outcome in queue.take(len(queue)):
                self._hand_over(message, outcome, watched[1], started)

        def after_layer(layer: int, hidden: Tensor) -> None:
            nonlocal watched
            if not (layer in self._layers or queue) or layer >= self._last_layer or not self._works:
                return
            try:
                if watched is None:
                    watched = self._watch(verifier, message)
                hints, nodes = watched
                if self._beside is not None:
                    self._start_beside(self._beside, hints, layer, hidden, take)
                    return
                queue.put(hints.after(layer, hidden))
                for outcome in queue.take(A_LAYER):
                    self._hand_over(message, outcome, nodes, started)
            except Exception as error:  # hints only help: no answer depends on them
                self._fail(error)

        return after_layer

    def _start_beside(
        self,
        beside: SideStream,
        hints: DraftHints,
        layer: int,
        hidden: Tensor,
        take: Callable[[list[ExitOutcome]], None],
    ) -> None:
        """Run an exit on its own stream; `take` gets its predictions if they are ready in time."""

        def then(chances: Tensor) -> None:
            if self._works:
                try:
                    take(hints.outcomes(layer, chances))
                except Exception as error:
                    self._fail(error)

        if hints.watches(layer, hidden):
            beside.start(hidden, lambda rows: hints.chances(layer, rows), then)

    def _fail(self, error: Exception) -> None:
        self._works = False
        text = self._log.trace_of(error)
        self._log.error("hints_failed", traceback=text)

    def _watch(self, verifier: Verifier, message: DraftUp) -> tuple[DraftHints, list[int]]:
        """Hints for the part of a draft that is fed to the target, and the nodes of that part.

        Called during the forward pass, so the draft has already been checked.
        """
        parents = None if message.parents is None else tuple(message.parents)
        draft = Draft(message.base, tuple(message.ids), parents)
        nodes = verifier.usable(draft)
        return self._hints.watch(select_nodes(draft, nodes), verifier.answer, verifier.limit), nodes

    def _hand_over(self, message: DraftUp, outcome: ExitOutcome, nodes: list[int], started: float) -> None:
        last = nodes[outcome.last - 1] + 1 if outcome.last else 0
        at_us = int((self._clock() - started) * 1e6)
        self._send(
            HintDown(
                message.session, message.round, last, outcome.token, outcome.confidence, outcome.layer, at_us
            )
        )
