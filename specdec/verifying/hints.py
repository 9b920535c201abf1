"""Hints: what early exits expect of the verdict on a draft, while the forward over it is still going on.

*Outcome*: the draft is accepted along the path to node `last - 1`, and the target's next token is `token`, which is
no child of that node. A verdict is an outcome; an exit gives each a probability: that of every token of the path, one
after the other, times that of the token. Outcomes that end the answer are left out, because no draft follows them.
Hints are never part of an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specdec.drafting import ROOT, Draft
from specdec.options import GenerationOptions
from specdec.sampling import process_logits
from specdec.sampling.adjust import Adjuster
from specdec.sampling.noise import gumbel_noise
from specdec.verifying.exits import Exits, Stage
from specdec.verifying.words import SessionWords, Words

OUTCOMES = 4
"""Outcomes that an exit names at most."""

MIN_CONFIDENCE = 0.02
"""Outcomes less likely than this are not worth a message."""

_NEVER = -1e9  # log-probability of what cannot happen: finite, so that zero times it is zero


class Outcome(NamedTuple):
    """last: one more than the last accepted node's index, as in Judgement. confidence: the exit's probability of it.

    layer: the exit's.
    """

    last: int
    token: int
    confidence: float
    layer: int


class HintMaker:
    """Makes the hints of all sessions of one model. Works for one thread; sessions may be interleaved."""

    def __init__(self, exits: Exits, stages: Sequence[Sequence[int]], outcomes: int = OUTCOMES) -> None:
        """stages: layers whose exits are worked out together, after the last of them; all of rising layers.

        Raises ModelError for a layer without an exit.
        """
        self.layers = tuple(layer for stage in stages for layer in stage)
        self.model = exits.model
        self.outcomes = outcomes
        self.stages = {layers[-1]: Stage(exits, layers) for layers in stages}
        self.words = Words(exits)
        self._looked_at = frozenset(self.layers)
        self._chain_paths: dict[int, Tensor] = {}

    def session(
        self, prompt_ids: Sequence[int], options: GenerationOptions, history: Sequence[int] = ()
    ) -> SessionHints:
        """Hints for one answer. history: tokens of it that are verified already."""
        return SessionHints(self, prompt_ids, options, history)

    def wants(self, layer: int) -> bool:
        """Whether the rows after this layer are looked at."""
        return layer in self._looked_at

    def paths(self, draft: Draft) -> Tensor:
        """float [nodes, nodes + 1]: 1 where a node lies on the path to a row: row 0 the root's, i + 1 node i's."""
        nodes = len(draft.ids)
        if draft.parents is not None:
            return _tree_paths(draft.parents).to(self.model.device)
        if nodes not in self._chain_paths:
            self._chain_paths[nodes] = torch.ones(nodes, nodes + 1, device=self.model.device).triu(1)
        return self._chain_paths[nodes]


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
        self.adjuster = Adjuster(options, prompt_ids, model.eos_token_ids, model.vocab_size, model.device)
        whole = maker.words.whole if self.adjuster.active else None
        self.words = whole or maker.words.session([*prompt_ids, *history])

    def watch(self, draft: Draft, answer: Sequence[int], limit: int) -> DraftHints:
        """Hints for a draft that goes on where the answer ends; limit: tokens the answer may have.

        The draft is what is fed to the target of it: its nodes are the last rows of the pass.
        """
        return DraftHints(self, draft, list(answer), limit)


class DraftHints:
    """Hints for one draft. Give it what every layer leaves; nothing is worked out before an exit's turn."""

    def __init__(self, session: SessionHints, draft: Draft, answer: list[int], limit: int) -> None:
        self._session = session
        self._draft = draft
        self._answer = answer
        self._limit = limit
        self._hidden: list[Tensor] = []
        self._layout: _Layout | None = None

    @torch.inference_mode()
    def after(self, layer: int, hidden: Tensor) -> list[Outcome]:
        """hidden [rows, hidden_size] after a layer; its last len(draft) + 1 rows count.

        Returns the likeliest outcomes of the exits whose turn it is, exit by exit, each one's likeliest first.
        """
        maker = self._session.maker
        rows = len(self._draft.ids) + 1
        if not maker.wants(layer) or hidden.shape[0] < rows:
            return []
        self._hidden.append(hidden[hidden.shape[0] - rows :])
        stage = maker.stages.get(layer)
        if stage is None:
            return []
        hidden_of_stage, self._hidden = self._hidden, []
        if self._layout is None:
            self._layout = _Layout(self._session, self._draft, self._answer, self._limit)
        return self._best(stage, hidden_of_stage, self._layout)

    def _best(self, stage: Stage, hidden: Sequence[Tensor], layout: _Layout) -> list[Outcome]:
        logits = stage.logits(hidden, layout.words.shortlist())
        if self._session.adjuster.active:
            logits = torch.stack([self._adjust(rows) for rows in logits])
        scores = layout.outcome_scores(logits).flatten(1)
        values, places = scores.topk(min(self._session.maker.outcomes, scores.shape[1]))
        width = logits.shape[2]
        found = []
        for layer, likely, where in zip(stage.layers, values.exp_().tolist(), places.tolist(), strict=True):
            for confidence, place in zip(likely, where, strict=True):
                if confidence >= MIN_CONFIDENCE:
                    row, column = divmod(place, width)
                    token = layout.words.token(column)
                    found.append(Outcome(row, token, min(confidence, 1.0), layer))
        return found

    def _adjust(self, logits: Tensor) -> Tensor:
        """As the target's own rows are adjusted: logits [rows, vocab] of one exit."""
        ids, parents, adjuster = self._draft.ids, self._draft.parents, self._session.adjuster
        if parents is None:
            return adjuster.chain(logits, self._answer, ids)
        return adjuster.nodes(logits, self._answer, ids, parents)


class _Layout:
    """Where the tokens of a draft stand in exits' logits [exits, rows, n]: row 0 before, row i + 1 after node i."""

    def __init__(self, session: SessionHints, draft: Draft, answer: list[int], limit: int) -> None:
        maker = session.maker
        words = session.words
        if not words.have([*draft.ids, *answer[-1:]]):
            words = maker.words.whole
        self.words: SessionWords = words
        self._options = session.options
        device = maker.model.device
        depths = [0, *(depth + 1 for depth in draft.depths())]
        parents = range(-1, len(draft.ids) - 1) if draft.parents is None else draft.parents
        places = [
            (parent + 1) * words.size + words.column(token)
            for parent, token in zip(parents, draft.ids, strict=True)
        ]
        self._places = torch.tensor(places, dtype=torch.long, device=device)
        self._paths = maker.paths(draft)
        # After one more token the answer is as long as it may be: nothing is drafted behind it.
        full = [row for row, depth in enumerate(depths) if len(answer) + depth + 1 >= limit]
        self._full = torch.tensor(full, dtype=torch.long, device=device) if full else None
        self._noise: Tensor | None = None
        if self._options.temperature > 0.0:
            positions = torch.tensor(depths, device=device) + len(answer)
            noise = gumbel_noise(self._options.seed, positions[:, None], words.ids[None, :])
            self._noise = noise.float()

    def outcome_scores(self, logits: Tensor) -> Tensor:
        """logits float32 [exits, rows, n] -> log-probability of the outcome of every row and token, like logits."""
        scores = self._log_probabilities(logits)
        scores.index_fill_(2, self.words.ends, _NEVER)
        flat = scores.flatten(1)
        tokens = flat.index_select(1, self._places)  # [exits, nodes]
        path = tokens @ self._paths  # [exits, rows]
        if self._full is not None:
            path.index_fill_(1, self._full, _NEVER)
        flat.index_fill_(1, self._places, _NEVER)  # a child is no outcome: the path goes on there
        return scores.add_(path[:, :, None])

    def _log_probabilities(self, logits: Tensor) -> Tensor:
        """Of being picked, which with shared noise is known but for the logits (see Chooser.log_scores)."""
        if self._noise is None:
            scores = torch.log_softmax(logits, dim=-1)
        else:
            scores = torch.log_softmax(process_logits(logits, self._options) + self._noise, dim=-1)
        return scores.clamp_(min=_NEVER)


def _tree_paths(parents: Sequence[int]) -> Tensor:
    """HintMaker.paths of a tree."""
    rows = [[0.0] * len(parents)]
    for node, parent in enumerate(parents):
        row = rows[parent - ROOT].copy()
        row[node] = 1.0
        rows.append(row)
    return torch.tensor(rows).t()
