# SPDX-License-Identifier: Apache-2.0
"""Made-up languages: the target's text, and a draft model that knows it as well as a world requires.

The draft model stands in for a LoadedModel, so that the real drafters draft with it. Its logits are computed on demand
from the preceding tokens; a forward takes time on the simulated clock only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import torch
from torch import Tensor

from benchmarks.regret.worlds import Fit
from specdec.drafting import TokenTree
from specdec.models import EncodedPrompt, Extension, Prompt
from specdec.models.plans import Plan, planned

VOCAB = 96
IDS = 1 << 20
"""Ids that both sides tell as their vocabulary: the first of a prompt is a position in the text."""
CANDIDATES = 8
_FADING = 0.55
_REPEATED = 12
_NEVER = -30.0
EOS = 0
"""No made-up answer ends with this token: all have their full length."""

State = tuple[int, int]
"""Number of tokens so far, and a mark of their deviation from the target's text; 0 if there is none."""


class SimulatedLanguage:
    """All answers of a world, and the draft model's probabilities after every beginning."""

    def __init__(self, seed: int, fit: Fit, tokens: int) -> None:
        """tokens: length of all answers together; they are one text, cut into answers."""
        draw = Random(seed)
        self._fit = fit
        self._rows: dict[State, Tensor] = {}
        self.text: list[int] = []
        easy = draw.random() < fit.easy
        again = _Again(fit.repeats, Random(seed + 3))
        for place in range(tokens + 1):
            if draw.random() < 1.0 / fit.stretch:
                easy = draw.random() < fit.easy
            ids, chances = self._chances(draw, easy)
            heated = [chance**fit.heat for chance in chances]
            token = draw.choices(ids, heated)[0]
            if (before := again.token(self.text)) is not None:
                ids = [{token: before, before: token}.get(one, one) for one in ids]
                token = before
            self.text.append(token)
            self._rows[place, 0] = _row(ids, chances)

    def after(self, state: State, token: int) -> State:
        """The state after one more token."""
        place, apart = state
        if not apart and place < len(self.text) and self.text[place] == token:
            return place + 1, 0
        return place + 1, hash((apart, place, token)) % 999_983 + 1

    def row(self, state: State) -> Tensor:
        """The draft model's logits [VOCAB]."""
        row = self._rows.get(state)
        if row is None:
            draw = Random(state[0] * 1_000_003 + state[1])
            row = self._rows[state] = _row(*self._chances(draw, draw.random() < self._fit.easy))
        return row

    def likeliest(self, place: int) -> int:
        """The draft model's own token at a position of the text."""
        return int(self._rows[place, 0].argmax())

    def _chances(self, draw: Random, easy: bool) -> tuple[list[int], list[float]]:
        """The tokens that may follow, and the draft model's probability of each."""
        mean = self._fit.sure_easy if easy else self._fit.sure_hard
        sure = draw.betavariate(6 * mean, 6 * (1 - mean))
        ids = draw.sample(range(1, VOCAB), CANDIDATES)
        rest = [_FADING**rank for rank in range(CANDIDATES - 1)]
        others = sorted(((1.0 - sure) * one / sum(rest) for one in rest), reverse=True)
        return ids, [max(one, 1e-9) for one in (sure, *others)]


class _Again:
    """Stretches of a text that repeat an earlier part."""

    def __init__(self, share: float, draw: Random) -> None:
        self._begins = share / (_REPEATED * (1.0 - share) + share)
        self._draw = draw
        self._at: int | None = None

    def token(self, text: Sequence[int]) -> int | None:
        """The token repeated at the end of a text; None if a new one follows."""
        draw = self._draw
        if self._at is not None and draw.random() < 1.0 / _REPEATED:
            self._at = None
        if self._at is None and text and draw.random() < self._begins:
            self._at = draw.randrange(len(text))
        if self._at is None:
            return None
        self._at += 1
        return text[self._at - 1]


def _row(ids: Sequence[int], chances: Sequence[float]) -> Tensor:
    row = torch.full((VOCAB,), _NEVER)
    row[list(ids)] = torch.tensor([math.log(chance) for chance in chances])
    return row


class SimulatedRunner:
    """Stands in for a DecoderRunner. Every forward calls `takes` with its number of rows."""

    sees_layers = False
    keeps_prompts = False
    pacer = None
    static = None

    def __init__(self, language: SimulatedLanguage, takes: Callable[[int], None]) -> None:
        self._language = language
        self._takes = takes
        self.joint = self
        self.vocab_size = VOCAB
        self.device = torch.device("cpu")

    def extend(self, extension: Extension) -> Tensor:
        """Logits [rows or 1, VOCAB] of one extension."""
        self._takes(extension.rows)
        session = extension.session
        assert isinstance(session, SimulatedSession)
        states = session.extended(extension.ids, extension.parents)
        wanted = states[-1:] if extension.last_only else states
        return torch.stack([self._language.row(state) for state in wanted])


class SimulatedSession:
    """The cache of one sequence: the states after each committed token, and a tree of speculative ones."""

    layers = None
    takes_embeddings = False
    branches_left = 1 << 30
    kv_bytes = 0
    most_tokens = 0
    in_order = staticmethod(len)
    at_once = False

    def __init__(self, model: SimulatedDraft) -> None:
        self.model = model
        self.runner = model.runner
        self._begun = (0, 0)
        self._prompt = 0
        self._states: list[State] = []
        self._tree: list[State] = []
        self.tree = TokenTree()

    @property
    def length(self) -> int:
        """How many tokens are committed."""
        return self._prompt + len(self._states)

    @planned
    def prefill(
        self,
        encoded: EncodedPrompt,
        observer: object,
        hidden: object,
        prefix: object = None,
        kept: int = 0,
    ) -> Plan[Tensor]:
        """Feed the prompt from the start; its first id is the position in the text where the answer begins."""
        self._prompt, self._begun = len(encoded.ids), (int(encoded.ids[0]), 0)
        self._states, self._tree, self.tree = [], [], TokenTree()
        self.model.prefilled()
        return self.model.language.row(self._begun)
        yield

    def extension(
        self,
        ids: Sequence[int],
        parents: Sequence[int] | None = None,
        last_only: bool = False,
        observer: None = None,
    ) -> Extension:
        """The input of a forward that appends these ids."""
        given = None if parents is None else tuple(parents)
        return Extension(self, tuple(ids), given, last_only)  # type: ignore[arg-type]

    def extended(self, ids: Sequence[int], parents: Sequence[int] | None) -> list[State]:
        """Append them; returns the state after each."""
        after, end = self.model.language.after, self._states[-1] if self._states else self._begun
        found: list[State] = []
        if parents is None:
            for token in ids:
                end = after(end, token)
                found.append(end)
            self._states += found
            return found
        for token, parent in zip(ids, parents, strict=True):
            state = after(end if parent < 0 else self._tree[parent], token)
            self._tree.append(state)
            self.tree.append(token, parent)
            found.append(state)
        return found

    def keep_path(self, nodes: Sequence[int], below: Sequence[int] = ()) -> None:
        """Commit a path of the tree, keep the nodes `below` its end, and drop the rest."""
        self._states += [self._tree[node] for node in nodes]
        self._tree = [self._tree[node] for node in below]
        self.tree = self.tree.select(below, nodes[-1] if nodes else -1)

    def rollback(self, n_tokens_kept: int) -> None:
        """Drop everything after this many tokens, the prompt included in the count."""
        del self._states[max(0, n_tokens_kept - self._prompt) :]
        self._tree, self.tree = [], TokenTree()


class SimulatedDraft:
    """Stands in for a LoadedModel that drafts. prefilled: called when a prompt is fed."""

    eos_token_ids = frozenset({EOS})
    vocab_size = IDS
    path = "simulated"
    vocabulary_fingerprint = b"simulated"
    never_drafted: frozenset[int] = frozenset()
    context_limit = 1 << 20
    is_multimodal = False
    tokenizer = None
    disturbance = None

    def __init__(
        self,
        language: SimulatedLanguage,
        takes: Callable[[int], None],
        prefilled: Callable[[], None],
        row_us: list[tuple[int, int]],
    ) -> None:
        """row_us: the reported times of its forwards."""
        self.language = language
        self.prefilled = prefilled
        self.row_us = row_us
        self.device = torch.device("cpu")
        self.runner = SimulatedRunner(language, takes)

    def grammar_soon(self, text: str) -> None:
        """Always None: no caller needs one."""

    def new_session(self) -> SimulatedSession:
        """An empty session."""
        return SimulatedSession(self)

    def encode(self, prompt: Prompt, seen: object = None) -> EncodedPrompt:
        """The prompt, unchanged."""
        return EncodedPrompt(torch.tensor(prompt.ids))

    def prompt_length(self, prompt: Prompt) -> int:
        """The number of tokens in a prompt."""
        return len(prompt.ids)

    def embed_prompt(self, encoded: EncodedPrompt) -> None:
        """Nothing to do: this model has ids only."""
