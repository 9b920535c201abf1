"""Languages given as tables: their distributions are known exactly, and an answer costs next to nothing.

A TableModel stands in for a LoadedModel. What it says next depends on EVERY token it was fed, in order, so a token
that is missing, fed twice or taken from another branch shows in all that follows, as it does in a real KV cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models
from torch import Tensor

from specdec.drafting import TokenTree
from specdec.models import EncodedPrompt, Extension, Prompt
from specdec.models.plans import Plan, planned
from specdec.models.runner import LayerObserver
from specdec.options import GenerationOptions
from specdec.sampling.disturbed import Disturbance
from specdec.sampling.grammar import Grammar, Grammars

STATES = 4099
PROMPT = Prompt((1, 2))
Answer = tuple[int, ...]
LETTERS = "\nabcdefghijklmnopqrstuvwxyz"
"""What the ids stand for where a grammar asks; 0, which ends answers, stands for nothing."""
LANGUAGES = {
    "start: /ab[cd]c?|b[acd]da|c(abcd|d{2,5})|d(ab?){0,2}/": frozenset(
        [
            "abc",
            "abd",
            "abcc",
            "abdc",
            "bada",
            "bcda",
            "bdda",
            "cabcd",
            "cdd",
            "cddd",
            "cdddd",
            "cddddd",
            "d",
            "da",
            "dab",
            "daa",
            "daab",
            "daba",
            "dabab",
        ]
    )
}
"""Grammars over a to d, and all sentences of each, written down by hand."""


def next_state(state: int, token: int) -> int:
    """The row of the table after one more token."""
    return (state * 31 + token + 1) % STATES


class TableRunner:
    """Stands in for a DecoderRunner: hidden states are rows of the table, found from what each session was fed."""

    sees_layers = False
    static = None
    joint = None

    def __init__(self, table: Tensor) -> None:
        self._table = table
        self.vocab_size = table.shape[1]
        self.device = torch.device("cpu")
        self.passes = 0
        self.kv_bytes_a_token = 1

    def embed(self, ids: Tensor) -> Tensor:
        """Ids int64 [rows] -> [rows, 1]."""
        return ids[:, None]

    def rotary(self, segments: object) -> None:
        """There is none."""

    def forward(
        self, hidden: Tensor, rotary: object, segments: Sequence[TableSegment], *others: object
    ) -> Tensor:
        """Ids [rows, 1] -> places in the table, int64 [rows]."""
        self.passes += 1
        states: list[int] = []
        for segment in segments:
            first = len(states)
            for token, parent in zip(
                hidden[first : first + segment.rows, 0].tolist(), segment.parents, strict=True
            ):
                before = (
                    segment.before[parent] if parent < segment.past else states[first + parent - segment.past]
                )
                states.append(next_state(before, token))
        return torch.tensor(states)

    def logits(self, hidden: Tensor) -> Tensor:
        """Places in the table [rows] -> logits [rows, vocab]."""
        return self._table[hidden]


@dataclass
class TableSegment:
    """Rows of one session in a forward. before: states that a row may follow. parents: which one each row does, those
    of the same forward counted on from `past`.
    """

    before: list[int]
    past: int
    rows: int
    parents: list[int]


class TableSession:
    """The cache of one sequence: the states after each committed token, and a tree of speculative ones."""

    layers = None
    takes_embeddings = False
    branches_left = most_branches = 1 << 30
    kv_bytes = 0
    in_order = staticmethod(len)

    def __init__(self, model: TableModel) -> None:
        self.model = model
        self.runner = model.runner
        self._states = [0]
        self._tree: list[tuple[int, int]] = []  # (parent, state)
        self.tree = TokenTree()

    @property
    def length(self) -> int:
        """How many tokens are committed."""
        return len(self._states) - 1

    @planned
    def prefill(
        self,
        encoded: EncodedPrompt,
        observer: LayerObserver | None,
        hidden: object,
        prefix: object = None,
        kept: int = 0,
    ) -> Plan[Tensor]:
        """Feed the prompt afresh; returns logits [vocab]."""
        self._states, self._tree, self.tree = [0], [], TokenTree()
        logits: Tensor = yield self.extension(encoded.ids.tolist(), None, True, observer)
        return logits[0]

    def extension(
        self,
        ids: Sequence[int],
        parents: Sequence[int] | None = None,
        last_only: bool = False,
        observer: LayerObserver | None = None,
    ) -> Extension:
        """What has to go into a forward to append these ids."""
        return Extension(
            self, tuple(ids), None if parents is None else tuple(parents), last_only, None, observer
        )

    def room_for(self, extension: Extension) -> TableSegment:
        """Where its rows go."""
        before = [state for _, state in self._tree] + [self._states[-1]]
        past, rows = len(before), extension.rows
        if extension.parents is None:
            assert not self._tree, "a tree is still open"
            parents = [past + row - 1 for row in range(rows)]
        else:  # node numbers go on behind the tree's; the end of the chain stands between both
            assert all(-1 <= parent < past - 1 + row for row, parent in enumerate(extension.parents))
            parents = [past - 1 if p < 0 else p + (p >= past - 1) for p in extension.parents]
        return TableSegment(before, past, rows, parents)

    def hold(self, extension: Extension) -> None:
        """Count in what a forward has been over."""
        first = len(self._tree)
        if extension.parents is None:
            for token in extension.ids:
                self._states.append(next_state(self._states[-1], token))
            return
        for token, parent in zip(extension.ids, extension.parents, strict=True):
            assert -1 <= parent < first + len(extension.ids), "a parent must come first"
            before = self._states[-1] if parent < 0 else self._tree[parent][1]
            self._tree.append((parent, next_state(before, token)))
            self.tree.append(token, parent)

    def keep_path(self, nodes: Sequence[int], below: Sequence[int] = ()) -> None:
        """Commit a path of the tree and keep the nodes `below` its end, forget the rest."""
        parent = -1
        for node in nodes:
            assert self._tree[node][0] == parent, "not a path from the root"
            parent = node
        numbers = {parent: -1, **{node: number for number, node in enumerate(below)}}
        kept = [(numbers[self._tree[node][0]], self._tree[node][1]) for node in below]
        assert all(parent < number for number, (parent, _) in enumerate(kept)), "a parent must come first"
        self._states += [self._tree[node][1] for node in nodes]
        self._tree = kept
        self.tree = self.tree.select(below, parent)

    def rollback(self, n_tokens_kept: int) -> None:
        """Forget everything after the first tokens."""
        assert 0 <= n_tokens_kept <= self.length
        del self._states[n_tokens_kept + 1 :]
        self._tree, self.tree = [], TokenTree()


class TableModel:
    """logits: float [STATES, vocab]. eos: the ids that end an answer."""

    def __init__(self, logits: np.ndarray, eos: frozenset[int] = frozenset({0})) -> None:
        self.logits = logits.astype(np.float32)
        self.runner = TableRunner(torch.from_numpy(self.logits))
        self.vocab_size = logits.shape[1]
        self.eos_token_ids = eos
        self.path = self.name = "a table"
        self.vocabulary_fingerprint = b"tables"
        self.weights_digest = b""
        self.never_drafted: frozenset[int] = frozenset()
        self.context_limit = 10_000
        self.device = torch.device("cpu")
        self.dtype = torch.float32
        self.is_multimodal = False
        self.row_us: list[tuple[int, int]] = []
        self.disturbance: Disturbance | None = None
        self.image_pad_id = None
        self.picture_rules = None
        self.parameter_count = self.logits.size
        self.tokenizer = LetterTokenizer(self.vocab_size)
        self._grammars = Grammars(self.tokenizer, self.vocab_size, eos)

    def grammar(self, text: str) -> Grammar | None:
        """A grammar over LETTERS."""
        return self._grammars.compile(text) if text else None

    def grammar_soon(self, text: str) -> Grammar:
        """The same."""
        return self._grammars.compile(text)

    def new_session(self) -> TableSession:
        """An empty session."""
        return TableSession(self)

    def encode(self, prompt: Prompt, seen: object = None) -> EncodedPrompt:
        """The prompt as it is."""
        return EncodedPrompt(torch.tensor(prompt.ids))

    def prompt_length(self, prompt: Prompt) -> int:
        """Tokens of a prompt."""
        return len(prompt.ids)

    def embed_prompt(self, encoded: EncodedPrompt) -> None:
        """Tables know ids only."""


class LetterTokenizer:
    """One letter a token."""

    def __init__(self, vocab_size: int) -> None:
        letters = {letter: token for token, letter in enumerate(LETTERS[1:vocab_size], start=1)}
        model = models.BPE(vocab={"<end>": 0, **letters}, merges=[])
        self.backend_tokenizer = Tokenizer(model)
        self.backend_tokenizer.decoder = decoders.ByteLevel()
        self.backend_tokenizer.add_special_tokens(["<end>"])


@dataclass(frozen=True)
class TablePair:
    """A target and a draft that says something similar."""

    target: TableModel
    draft: TableModel


def table_pair(vocab: int, unlikeness: float, seed: int = 0, sharpness: float = 1.3) -> TablePair:
    """Random languages. unlikeness: standard deviation of the draft's logits around the target's; 0 = the same."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(STATES, vocab)) * sharpness
    logits[:, 0] -= 1.0  # an end now and then
    return TablePair(TableModel(logits), TableModel(logits + unlikeness * rng.normal(size=logits.shape)))


def endless(pair: TablePair) -> TablePair:
    """The same two, but neither ever says the token that ends an answer."""
    pair.target.logits[:, 0] = pair.draft.logits[:, 0] = -30.0
    return pair


def next_chances(logits: np.ndarray, options: GenerationOptions) -> np.ndarray:
    """The distribution float64 [vocab] that one row of logits stands for; written without torch or specdec."""
    scaled = logits.astype(np.float64) / options.temperature
    if 0 < options.top_k < scaled.size:
        scaled[scaled < np.sort(scaled)[-options.top_k]] = -np.inf
    chances = np.exp(scaled - scaled.max())
    chances /= chances.sum()
    if options.top_p < 1.0:
        order = np.argsort(-chances, kind="stable")
        before = np.concatenate([[0.0], np.cumsum(chances[order])[:-1]])
        chances[order[before >= options.top_p]] = 0.0
        chances /= chances.sum()
    if options.min_p > 0.0:
        chances[chances < options.min_p * chances.max()] = 0.0
        chances /= chances.sum()
    return chances


def adjusted(
    model: TableModel, state: int, options: GenerationOptions, prompt: Prompt, answer: Answer
) -> np.ndarray:
    """A row of logits after bias, repetition penalty and minimum length; written without torch or specdec."""
    logits = model.logits[state].astype(np.float64)
    for token, bias in options.logit_bias:
        logits[token] += bias
    for token in {*prompt.ids, *answer}:
        factor = options.repetition_penalty
        logits[token] = logits[token] * factor if logits[token] < 0 else logits[token] / factor
    if len(answer) < options.min_new_tokens:
        logits[sorted(model.eos_token_ids)] = -np.inf
    if options.grammar:
        said = "".join(LETTERS[token] for token in answer)
        going_on = [
            sentence[len(said)]
            for sentence in LANGUAGES[options.grammar]
            if said < sentence[: len(said) + 1] and sentence.startswith(said)
        ]
        for token in range(1, model.vocab_size):
            if LETTERS[token] not in going_on:
                logits[token] = -np.inf
        if not going_on:
            logits[sorted(model.eos_token_ids)] = 0.0  # however short it is
        elif said not in LANGUAGES[options.grammar]:
            logits[sorted(model.eos_token_ids)] = -np.inf
    return logits


def states_of(prompt: Prompt, answer: Sequence[int]) -> list[int]:
    """The row of the table that each token of an answer was chosen from."""
    state = 0
    for token in prompt.ids:
        state = next_state(state, token)
    states = [state]
    for token in answer[:-1]:
        states.append(next_state(states[-1], token))
    return states


def answer_chances(
    model: TableModel, prompt: Prompt, options: GenerationOptions, length: int
) -> dict[Answer, float]:
    """The chance of every possible beginning of an answer, float64: `length` tokens, or fewer and then an end."""
    state = 0
    for token in prompt.ids:
        state = next_state(state, token)
    found: dict[Answer, float] = {}
    open_ends: list[tuple[Answer, int, float]] = [((), state, 1.0)]
    while open_ends:
        answer, state, chance = open_ends.pop()
        logits = adjusted(model, state, options, prompt, answer)
        for token, after in enumerate(next_chances(logits, options)):
            if after == 0.0:
                continue
            longer = (*answer, token)
            if token in model.eos_token_ids or len(longer) == length:
                found[longer] = chance * float(after)
            else:
                open_ends.append((longer, next_state(state, token), chance * float(after)))
    return found
