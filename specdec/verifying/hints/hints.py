# SPDX-License-Identifier: Apache-2.0
"""Hints: early exits' predictions of the verdict on a draft, made while the forward pass over it is running.

*Outcome*: the draft is accepted along the path to node `last - 1`, and the target's next token is `token`, which is
not a child of that node. A verdict is an outcome. An exit's probability of an outcome is the product of its
probabilities of all tokens of the path and of the next token. Outcomes that end the answer are left out, because no
draft follows them. Hints are never part of an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.drafting import ROOT, Draft
from specdec.options import GenerationOptions
from specdec.sampling import process_logits
from specdec.sampling.choice import Adjuster
from specdec.sampling.noise import gumbel_noise
from specdec.verifying.exits import Exits
from specdec.verifying.hints.side_stream import SideStream, beside_of
from specdec.verifying.hints.vocabulary import ExitVocabulary, SessionVocabulary

OUTCOMES = 4
"""Most outcomes that one exit names."""

MIN_CONFIDENCE = 0.02
"""Outcomes less likely than this are not worth a message."""


class ExitOutcome(NamedTuple):
    """An outcome as an exit predicts it. last: index of the last accepted node + 1, as in Judgement. confidence: the
    exit's probability of the outcome. layer: the exit's layer.
    """

    last: int
    token: int
    confidence: float
    layer: int


class HintMaker:
    """Makes the hints of all sessions of one model. For one thread; sessions may be interleaved.

    layers: the layers with an exit, ascending. beside: the side stream on which exits run; None: exits run within the
    pass.
    """

    def __init__(self, exits: Exits, beside: SideStream | None = None) -> None:
        """exits: all of them are used. beside: None: the default of the device."""
        self.exits = exits
        self.layers = exits.layers
        self.model = exits.model
        self.beside = beside or beside_of(exits.model.device)
        self.vocabulary = ExitVocabulary(exits)
        static = exits.model.runner.static
        if static is not None:
            static.observe(exits.layers)

    def session(
        self, prompt_ids: Sequence[int], options: GenerationOptions, history: Sequence[int] = ()
    ) -> SessionHints:
        """Hints for one answer. history: its tokens verified so far."""
        return SessionHints(self, prompt_ids, options, history)


class SessionHints:
    """Hints for one answer, draft by draft."""

    def __init__(
        self,
        maker: HintMaker,
        prompt_ids: Sequence[int],
        options: GenerationOptions,
        history: Sequence[int],
    ) -> None:
        model = maker.model
        self.maker = maker
        self.options = options
        # A grammar in a worker would stall the forward pass, so hints ignore it.
        grammar = None if model.is_isolated else model.grammar(options.grammar)
        self.adjuster = Adjuster(
            options, prompt_ids, model.eos_token_ids, model.vocab_size, model.device, grammar
        )
        whole = maker.vocabulary.whole if self.adjuster.active else None
        self.vocabulary = whole or maker.vocabulary.session([*prompt_ids, *history])

    def watch(self, draft: Draft, answer: Sequence[int], limit: int) -> DraftHints:
        """Hints for a draft that continues the answer. limit: most tokens of the answer.

        The draft must consist of the nodes fed to the target: they are the last rows of the pass.
        """
        return DraftHints(self, draft, list(answer), limit)


class DraftHints:
    """Hints for one draft. Nothing is computed before the first exit."""

    def __init__(self, session: SessionHints, draft: Draft, answer: list[int], limit: int) -> None:
        self._session = session
        self._draft = draft
        self._answer = answer
        self._limit = limit
        self._rows = len(draft.ids) + 1
        self._layout: _Layout | None = None

    def after(self, layer: int, hidden: Tensor) -> list[ExitOutcome]:
        """The likeliest outcomes by this layer's exit, likeliest first. For the observer of the forward pass.

        hidden: [rows, hidden_size] after the layer; its last len(draft) + 1 rows are used. Returns nothing if the layer
        has no exit, or the pass has no row for the token after the answer alone.
        """
        if not self.watches(layer, hidden):
            return []
        return self.outcomes(layer, self.chances(layer, hidden).cpu())

    def watches(self, layer: int, hidden: Tensor) -> bool:
        """Whether `after` can make hints after this layer of a pass with these rows."""
        return layer in self._session.maker.layers and hidden.shape[0] >= self._rows

    def chances(self, layer: int, hidden: Tensor) -> Tensor:
        """The device part of `after`: probabilities float32 [rows, n] for `outcomes`, without a wait."""
        maker = self._session.maker
        if hidden.shape[0] > self._rows:
            hidden = hidden[-self._rows :]
        if self._layout is None:
            self._layout = _Layout(self._session, self._draft, self._answer, self._limit)
        layout = self._layout
        shortlist = layout.vocabulary.shortlist()  # another session of this pass may have replaced the columns
        logits = maker.exits.logits(layer, hidden, shortlist)
        if self._session.adjuster.active:
            logits = self._adjust(logits)
        return layout.chances(logits)

    def outcomes(self, layer: int, chances: Tensor) -> list[ExitOutcome]:
        """The CPU part of `after`; overwrites `chances`."""
        layout = self._layout
        assert layout is not None, "chances come first"
        token = layout.vocabulary.token
        likely = layout.likeliest(chances.numpy(), OUTCOMES)
        return [ExitOutcome(row, token(column), min(chance, 1.0), layer) for chance, row, column in likely]

    def _adjust(self, logits: Tensor) -> Tensor:
        """Adjust logits [rows, vocab] like the target's own rows."""
        ids, parents, adjuster = self._draft.ids, self._draft.parents, self._session.adjuster
        if parents is None:
            return adjuster.chain(logits, self._answer, ids)
        return adjuster.nodes(logits, self._answer, ids, parents)


class _Layout:
    """Positions of a draft's tokens in an exit's logits [rows, n]: row 0 precedes the draft, row i + 1 follows node i.
    """

    def __init__(self, session: SessionHints, draft: Draft, answer: list[int], limit: int) -> None:
        vocabulary = session.vocabulary
        if not vocabulary.have([*draft.ids, *answer[-1:]]):
            vocabulary = session.maker.vocabulary.whole
        self.vocabulary: SessionVocabulary = vocabulary
        shortlist = vocabulary.shortlist()
        self._options = session.options
        parents = range(ROOT, len(draft.ids) - 1) if draft.parents is None else draft.parents
        self._nodes = [
            (parent + 1, vocabulary.column(token)) for parent, token in zip(parents, draft.ids, strict=True)
        ]
        depths = [0, *(depth + 1 for depth in draft.depths())]
        # After one more token the answer has its maximum length: nothing is drafted after it.
        self._full = [row for row, depth in enumerate(depths) if len(answer) + depth + 1 >= limit]
        self._noise: Tensor | None = None
        if self._options.temperature > 0.0:
            device = session.maker.model.device
            ids = (
                torch.arange(vocabulary.size, device=device) if shortlist is None else shortlist.ids
            )
            positions = torch.tensor(depths, device=device) + len(answer)
            noise = gumbel_noise(self._options.seed, positions[:, None], ids[None, :])
            self._noise = noise.float()

    def chances(self, logits: Tensor) -> Tensor:
        """logits float32 [rows, n] -> probability of each token to be picked, of the same shape."""
        if self._noise is not None:  # the noise is known, so it is included (see Chooser.log_scores)
            logits = process_logits(logits, self._options) + self._noise
        return torch.softmax(logits, dim=-1)

    def likeliest(self, scores: npt.NDArray[np.float32], count: int) -> list[tuple[float, int, int]]:
        """The likeliest outcomes as (probability, row, column), descending, at most `count`. Overwrites scores [rows,
        n].

        Optimised for the middle of a forward pass: few operations, each on one row.
        """
        ends = self.vocabulary.ends  # an EOS is not an outcome either, and nothing follows it
        paths = [1.0]
        for row, column in self._nodes:
            paths.append(0.0 if column in ends else paths[row] * scores.item(row, column))
        for row, column in self._nodes:  # a child is not an outcome, because the path continues there
            scores[row, column] = 0.0
        for row in self._full:
            paths[row] = 0.0
        columns = scores.argmax(axis=1).tolist()
        best = [
            (path * scores.item(row, column), row, column)
            for row, (path, column) in enumerate(zip(paths, columns, strict=True))
            if path >= MIN_CONFIDENCE
        ]
        found: list[tuple[float, int, int]] = []
        while best and len(found) < count:
            outcome = max(best)
            if not outcome[0] >= MIN_CONFIDENCE:
                break
            _, row, column = outcome
            if column not in ends:
                found.append(outcome)
            scores[row, column] = 0.0
            column = int(scores[row].argmax())
            best[best.index(outcome)] = (paths[row] * scores.item(row, column), row, column)
        return found
