"""The engine on vLLM, as far as it goes without vLLM: tokens of many sessions picked at once, answers that grow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cloud_verifier.engine_vllm.answers import AnswerBounds, VllmAnswer
from cloud_verifier.engine_vllm.picking import Guide, Rules, WantedRows, accepted_and_next, pick_rows
from specdec.errors import ProtocolError
from specdec.link.wire import DraftUp
from specdec.options import GenerationOptions
from specdec.sampling import Chooser
from specdec.sampling.choice import Adjuster
from specdec.sampling.grammar import Grammars
from tests.helpers.tiny_models import make_tokenizer

EOS = frozenset({3, 7})
KINDS = [
    GenerationOptions(64),
    GenerationOptions(64, temperature=0.8, seed=1),
    GenerationOptions(64, temperature=1.4, seed=(1 << 63) - 2, top_k=12),
    GenerationOptions(64, temperature=0.9, seed=3, top_p=0.6),
    GenerationOptions(64, temperature=2.0, seed=4, min_p=0.1),
    GenerationOptions(64, repetition_penalty=1.4, min_new_tokens=9),
    GenerationOptions(64, repetition_penalty=0.7, logit_bias=((5, 2.0), (9, -3.5))),
    GenerationOptions(64, 1.1, 5, 40, 0.9, 0.02, 1.2, ((2, 1.0), (3, 4.0)), 8),
]


@pytest.mark.slow
@pytest.mark.parametrize("vocab", [97, 9000])
@pytest.mark.parametrize("seed", range(4))
def test_many_sessions_at_once_pick_what_each_would_alone(vocab: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    wanted, rows, right = [], [], []
    for number in range(24):
        options = KINDS[(number + seed) % len(KINDS)]
        prompt = rng.integers(0, vocab, rng.integers(1, 9))
        answer = rng.integers(0, vocab, rng.integers(0, 12))
        draft = rng.integers(0, vocab, rng.integers(0, 6))
        logits = torch.from_numpy(rng.normal(0, 3, (len(draft) + 1, vocab)).astype(np.float32))
        adjuster = Adjuster(options, prompt.tolist(), EOS, vocab, torch.device("cpu"), None)
        adjusted = adjuster.chain(logits, answer.tolist(), draft.tolist())
        right += Chooser(options).choose(adjusted, len(answer))
        rows.append(logits)
        wanted.append(WantedRows(Rules.from_options(options), len(answer), np.concatenate([prompt, answer]), draft))
    assert pick_rows(torch.cat(rows), wanted, sorted(EOS)).tolist() == right


def test_rows_follow_the_grammars_of_their_sessions() -> None:
    """Also behind drafts that break them; one that cannot be followed is its own session's fault."""
    tokenizer = make_tokenizer()
    vocab, ends = len(tokenizer), frozenset(tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))
    grammar = Grammars(tokenizer, vocab, ends).compile('start: /[a-z]+/ "\\n" ("one" | "two")')

    def ids_of(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    rng = np.random.default_rng(1)
    rows, wanted, right = [], [], []
    for number, (answer, draft) in enumerate(
        [("", "ab\n"), ("ab", "c\ntwo"), ("ab\n", "t"), ("ab", "7x"), ("ab\none", ""), ("ab", ""), ("7", "ab")]
    ):
        options = replace(KINDS[number], grammar="as above", min_new_tokens=30 * (number % 2))
        known, chain = ids_of(answer), ids_of(draft)
        guide = Guide(grammar) if number != 5 else None
        logits = torch.from_numpy(rng.normal(0, 3, (len(chain) + 1, vocab)).astype(np.float32))
        seen = np.array([1, *known])
        wanted.append(WantedRows(Rules.from_options(options, guide=guide), len(known), seen, np.array(chain, np.int64)))
        rows.append(logits)
        followed = grammar if guide is not None and answer != "7" else None
        adjuster = Adjuster(options, [1], ends, vocab, torch.device("cpu"), followed)
        right.append(Chooser(options).choose(adjuster.chain(logits, known, chain), len(known)))
    right[4] = [min(ends)]  # only an end may follow: which one is not a question
    picks = pick_rows(torch.cat(rows), wanted, sorted(ends)).tolist()
    assert picks == [pick for one in right for pick in one]
    faults = [one.rules.guide.fault for one in wanted if one.rules.guide is not None]
    assert faults[:-1] == [None] * 5 and "grammar" in str(faults[-1])


def test_of_each_draft_stays_what_was_picked_and_the_pick_behind_it() -> None:
    picks = torch.tensor([5, 6, 7, 1, 8, 9, 4])
    drafts = torch.tensor([5, 0, 8, 9])  # of 2, 0 and 2 tokens
    assert accepted_and_next(picks, drafts, [2, 0, 2]).tolist() == [[5, 6, -1], [1, -1, -1], [8, 9, 4]]
    assert accepted_and_next(torch.tensor([3, 4]), torch.tensor([], dtype=torch.long), [0, 0]).tolist() == [[3], [4]]


def bounds(limit: int = 10, most: int = 4) -> AnswerBounds:
    return AnswerBounds(limit, 50, EOS, frozenset({40}), most)


def draft(base: int, *ids: int) -> DraftUp:
    return DraftUp(1, 1, base, list(ids))


def test_a_draft_is_judged_by_the_answer_however_that_grew() -> None:
    answer = VllmAnswer(bounds())
    answer.grow([10])
    sent = draft(1, 11, 12, 13, 14, 15, 16)
    assert answer.verdict(sent) is None and answer.rest(sent) == [11, 12, 13, 14]
    answer.grow([11])  # a cache that was made anew brings one token, and no more
    assert answer.verdict(sent) is None and answer.rest(sent) == [12, 13, 14, 15]
    answer.grow([12, 13, 14, 15, 16])
    assert answer.verdict(sent) is None and answer.rest(sent) == []
    answer.grow([17])
    assert answer.verdict(sent) == (6, 17)
    assert answer.verdict(draft(2, 12, 9)) == (1, 13)


def test_nothing_stays_behind_an_end_a_placeholder_or_the_last_token() -> None:
    answer = VllmAnswer(bounds(limit=5))
    answer.grow([10])
    sent = draft(1, 11, 40, 12)
    assert answer.rest(sent) == [11]
    answer.grow([11, 40])
    assert answer.verdict(sent) == (1, 40)
    assert answer.rest(draft(3, 12, 13, 14)) == [12], "the target's own is the fifth"
    answer.grow([12, 13])
    assert answer.finished and answer.verdict(draft(3, 12, 13, 14)) == (1, 13)
    with pytest.raises(ProtocolError, match="after the end"):
        answer.check(draft(5, 12))
    ended = VllmAnswer(bounds(), [10])
    ended.grow([3, 11])
    assert ended.ids == [10, 3] and ended.verdict(draft(1, 3, 11)) == (0, 3)


def test_what_does_not_fit_is_refused() -> None:
    answer = VllmAnswer(bounds(), [10])
    for sent in (draft(2, 1), draft(1, 50), DraftUp(1, 1, 1, [1, 2], [-1, -1])):
        with pytest.raises(ProtocolError):
            answer.check(sent)
    for history in ([1] * 10, [3], [50]):
        with pytest.raises(ProtocolError):
            VllmAnswer(bounds(), history)
