"""Figures of the cards: loops, tokens a round against drafting token by token, answers in batches."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from specnav.recipes.errors import TrainingError
from specnav.recipes.text.measure import mean_loss, pair_figures, read_questions, tokens_a_round
from specnav.recipes.text.models import LlamaShape, build_model
from specnav.recipes.text.repeats import loops, tokens_to_avoid
from specnav.recipes.text.rows import OwnTexts
from specnav.recipes.text.speech import speak

SHAPE = LlamaShape(layers=1, width=64, inner=64, heads=2, kv_heads=1)
VOCABULARY, END = 40, 0


def model(seed: int):
    torch.manual_seed(seed)
    return build_model(SHAPE, VOCABULARY, END).eval()


@pytest.mark.parametrize(
    ("ids", "loop"),
    [
        ([7] * 13, True),
        ([7] * 12, False),
        ([1, 2, 3, 4, 5, 6] * 3, True),
        ([1, 2, 3, 4, 5, 6] * 2 + [1, 2, 3], False),
        ([*range(20), *[8, 9] * 7, *range(20)], True),
        (list(range(60)), False),
        ([], False),
    ],
)
def test_an_answer_loops_when_a_piece_stands_there_three_times(ids, loop):
    assert loops(np.array(ids, np.int64)) is loop


def test_only_what_lengthens_a_whole_copy_is_avoided():
    ids = np.array([9, *[1, 2, 3, 4, 5, 6, 7, 8] * 3, 9])
    assert np.flatnonzero(tokens_to_avoid(ids)).tolist() == list(range(17, 25))
    assert not tokens_to_avoid(np.array([5, 5, 5, 5, 5, 5, 1])).any()


@pytest.mark.parametrize(
    ("agrees", "gained"),
    [
        ([True] * 10, [5, 5]),
        ([False] * 3, [1, 1, 1]),
        ([True, True, False, True, True], [3, 2]),
        ([True] * 4, [4]),
        ([False, True, True, True, True, True, True], [1, 5, 1]),
    ],
)
def test_a_round_gains_the_accepted_tokens_and_one(agrees, gained):
    assert tokens_a_round(agrees, 4) == gained
    assert sum(gained) == len(agrees)


def drafted_rounds(target, draft, prompt: list[int], limit: int, gamma: int) -> list[int]:
    """Speculative decoding as the papers write it, token by token and without a cache."""

    def likeliest(which, ids):
        return int(which(input_ids=torch.tensor([ids])).logits[0, -1].argmax())

    ids, rounds = list(prompt), []
    while len(ids) - len(prompt) < limit and (ids[-1] != END or len(ids) == len(prompt)):
        gained, room = 0, limit - (len(ids) - len(prompt))
        drafted: list[int] = []
        for _ in range(min(gamma, room - 1)):
            drafted.append(likeliest(draft, ids + drafted))
        for token in [*drafted, None]:
            wanted = likeliest(target, ids)
            ids.append(wanted)
            gained += 1
            if token != wanted or wanted == END:
                break
        rounds.append(gained)
    return rounds


@pytest.mark.slow
def test_tau_without_a_link_is_what_drafting_token_by_token_gains():
    target, draft = model(1), model(2)
    draft.load_state_dict(
        {name: value + 0.02 * torch.randn_like(value) for name, value in target.state_dict().items()}
    )
    prompts = [[3, 4, 5], [6], [7, 8, 9, 10, 11], [12, 13]]
    with torch.inference_mode():
        rounds = [drafted_rounds(target, draft, prompt, 24, 4) for prompt in prompts]
    found = pair_figures(draft, speak(target, prompts, 24), 4)
    gained = [each for answer in rounds for each in answer]
    assert 1.0 < found.tau < 5.0
    assert found.tau == pytest.approx(sum(gained) / len(gained))


def test_answers_do_not_depend_on_their_neighbours_in_the_batch():
    speaker = model(4)
    prompts = [[3] * 9, [5, 6], [7, 8, 9, 10]]
    together = speak(speaker, prompts, 12)
    for row, prompt in enumerate(prompts):
        alone = speak(speaker, [prompt], 12)
        assert together.answer(row).tolist() == alone.answer(0).tolist()
        assert together.ids[row, : len(prompt)].tolist() == prompt


def test_sampled_texts_are_marked_and_depend_on_the_seed():
    speaker, prompts = model(5), [[3, 4]] * 4
    texts, again, other = (speak(speaker, prompts, 8, 0.5, seed) for seed in (1, 1, 2))
    assert texts.greedy.tolist() == [True, True, False, False]
    assert torch.equal(texts.ids, again.ids)
    assert not torch.equal(texts.ids, other.ids)


def test_loss_is_the_mean_cross_entropy_of_all_but_the_first_tokens():
    speaker = model(6)
    rows = torch.randint(VOCABULARY, (5, 9), generator=torch.Generator().manual_seed(0))
    expected = speaker(input_ids=rows, labels=rows).loss.item()
    assert mean_loss(speaker, rows) == pytest.approx(expected, rel=1e-5)


def test_own_texts_survive_their_file(tmp_path):
    texts = speak(model(7), [[3, 4], [5]], 6)
    texts.save(tmp_path / "own.npz")
    found = OwnTexts.load(tmp_path / "own.npz")
    for name in ("ids", "prompts", "lengths", "greedy"):
        assert torch.equal(getattr(found, name), getattr(texts, name))


def test_questions_are_first_turns_and_a_bad_line_is_named(tmp_path):
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps({"question_id": 1, "turns": ["one?", "two?"]}) + "\n\n", encoding="utf-8")
    assert read_questions(file) == ["one?"]
    file.write_text('{"question_id": 1, "turns": ["one?"]}\n{"question_id": 2, "turns": []}\n', encoding="utf-8")
    with pytest.raises(TrainingError, match="line 2"):
        read_questions(file)
    with pytest.raises(TrainingError, match="cannot read"):
        read_questions(tmp_path / "none.jsonl")
