"""The edge's small model at work: it follows the verified answer and proposes what may come next."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec.drafting.draft import ROOT, Draft
from specdec.drafting.tree import Candidate, TreeSize, grow, prune
from specdec.follower import Follower
from specdec.models import LoadedModel, Prompt
from specdec.options import GenerationOptions
from specdec.sampling import Chooser, process_logits
from specdec.sampling.rejection import draw
from specdec.sampling.uniform import Purpose, uniforms


class Drafter:
    """Drafts for one answer. Its guesses only cost time when wrong: the target decides every token."""

    def __init__(self, model: LoadedModel, options: GenerationOptions) -> None:
        self._model = model
        self._follower = Follower(model.new_session())
        self._options = options
        self._chooser = Chooser(options)
        self._predicted: list[int] = []
        banned = sorted(model.never_drafted)
        self._banned = torch.tensor(banned, device=model.device) if banned else None

    def prefill(self, prompt: Prompt) -> None:
        """Feed the prompt. Raises ModelError where the draft model cannot take it."""
        self._follower.prefill(self._model.encode(prompt))
        self._predicted = []

    def room(self, answer_length: int) -> int:
        """How many tokens may still be drafted before the draft model's context is full."""
        return self._model.context_limit - self._follower.prompt_length - answer_length

    def chain(self, answer: Sequence[int], gamma: int) -> Draft:
        """Draft a chain of up to `gamma` tokens after `answer`; it ends early at an EOS token.

        Tokens that were predicted before under the same answer (see `ahead`) cost nothing.
        """
        base = len(answer)
        if self._predicted[:base] != list(answer):
            self._predicted = list(answer)
        while len(self._predicted) < base + gamma and self.ahead():
            pass
        return Draft(base, tuple(self._predicted[base : base + gamma]))

    def predicted_after(self, answer: Sequence[int]) -> int:
        """How many tokens after `answer` are predicted already."""
        base = len(answer)
        return len(self._predicted) - base if self._predicted[:base] == list(answer) else 0

    @torch.inference_mode()
    def ahead(self) -> bool:
        """Predict one more token; False where the prediction ends: at an EOS or with the context."""
        predicted = self._predicted
        if self.room(len(predicted)) < 1 or (predicted and predicted[-1] in self._model.eos_token_ids):
            return False
        row = self._without_placeholders(self._follower.rows(predicted))
        predicted.append(self._chooser.choose(row, len(predicted))[0])
        return True

    @torch.inference_mode()
    def sampled_chain(self, answer: Sequence[int], gamma: int) -> tuple[Draft, Tensor]:
        """Draft a chain by sampling from q; returns it with q's rows, float32 [k, vocab], as they were
        sampled from.

        Needs a temperature above 0. The rows are after every processor (TRAPS 4).
        """
        sequence = list(answer)
        base = len(sequence)
        rows: list[Tensor] = []
        for _ in range(min(gamma, self.room(base))):
            logits = self._without_placeholders(self._follower.rows(sequence))
            q = process_logits(logits, self._options)[0].exp()
            number = float(uniforms(self._options.seed, Purpose.DRAFT, len(sequence))[0])
            rows.append(q)
            sequence.append(draw(q, number))
            if sequence[-1] in self._model.eos_token_ids:
                break
        q_rows = torch.stack(rows) if rows else torch.empty(0, self._model.vocab_size)
        return Draft(base, tuple(sequence[base:])), q_rows

    @torch.inference_mode()
    def tree(self, answer: Sequence[int], size: TreeSize, max_depth: int) -> Draft:
        """Draft a tree after `answer`, no deeper than max_depth and what is left of the context."""
        base = len(answer)
        depth = min(size.depth, max_depth, (self.room(base) - 1) // size.beam)
        if depth <= 0:
            return Draft(base, ())
        size = TreeSize(size.budget, depth)
        numbers = {
            ROOT: ROOT
        }  # candidate -> node of the follower's tree, for those that went through the model
        candidates: list[Candidate] = []

        def scores(rows: Tensor, position: int) -> Tensor:
            positions = torch.full((rows.shape[0],), position, device=rows.device)
            return self._chooser.log_scores(self._without_placeholders(rows), positions)

        def expand(frontier: Sequence[int]) -> Tensor:
            for index in frontier:
                numbers[index] = len(numbers) - 1
            nodes = [candidates[index] for index in frontier]
            rows = self._follower.grow_tree(
                [node.token for node in nodes], [numbers[node.parent] for node in nodes]
            )
            return scores(rows, base + nodes[0].depth + 1)

        root = scores(self._follower.tree_rows(answer, (), ()), base)[0]
        grow(candidates, root, size, self._model.eos_token_ids, expand)
        return prune(base, candidates, size.budget)

    def _without_placeholders(self, rows: Tensor) -> Tensor:
        return rows if self._banned is None else rows.index_fill(1, self._banned, float("-inf"))
