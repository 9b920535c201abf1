"""Figures of the cards: loops, tokens a round against drafting token by token, answers in batches."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from specnav.recipes.drafts.figures import tokens_a_round
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import ExitSample, read_questions
from specnav.recipes.text.measure import mean_loss, pair_figures
from specnav.recipes.text.models import LlamaShape, build_model
from specnav.recipes.text.repeats import loops, tokens_to_avoid
from specnav.recipes.text.train import TrainTextConfig, train_text
from specnav.recipes.vlm import TrainVlmConfig, train_vlm


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


def drafted_rounds(target: DraftNetwork, draft: DraftNetwork, prompt: list[int], limit: int, gamma: int) -> list[int]:
    """Speculative decoding as the papers write it, token by token and without a cache."""

    def likeliest(which, ids):
        return int(which.logits(torch.tensor([ids]), torch.arange(len(ids))[None])[0, -1].argmax())

    ids, rounds, ends = list(prompt), [], target.loaded.eos_token_ids
    while len(ids) - len(prompt) < limit and (ids[-1] not in ends or len(ids) == len(prompt)):
        gained, room = 0, limit - (len(ids) - len(prompt))
        drafted: list[int] = []
        for _ in range(min(gamma, room - 1)):
            drafted.append(likeliest(draft, ids + drafted))
        for token in [*drafted, None]:
            wanted = likeliest(target, ids)
            ids.append(wanted)
            gained += 1
            if token != wanted or wanted in ends:
                break
        rounds.append(gained)
    return rounds


@pytest.mark.slow
def test_tau_without_a_link_is_what_drafting_token_by_token_gains(model_root):
    target, draft = (DraftNetwork(str(model_root / "text-target")) for _ in range(2))
    torch.manual_seed(2)
    weights = draft.module.state_dict()
    draft.module.load_state_dict({name: value + 0.02 * torch.randn_like(value) for name, value in weights.items()})
    prompts = [[3, 4, 5], [6], [7, 8, 9, 10, 11], [12, 13]]
    with torch.inference_mode():
        rounds = [drafted_rounds(target, draft, prompt, 24, 4) for prompt in prompts]
    asked = [ExitSample(tuple(prompt), len(prompt)) for prompt in prompts]
    found = pair_figures(draft, target.answer(asked, 24), 4)
    gained = [each for answer in rounds for each in answer]
    assert 1.0 < found.tau < 5.0
    assert found.tau == pytest.approx(sum(gained) / len(gained))
    assert found.mean_tokens == pytest.approx(sum(gained) / len(prompts))


def test_sampled_texts_depend_on_the_seed(model_root):
    speaker, prompts = DraftNetwork(str(model_root / "text-target")), [ExitSample((3, 4), 2)] * 4
    texts, again, other = (speaker.answer(prompts, 8, 0.8, seed) for seed in (1, 1, 2))
    assert texts == again != other


def test_loss_is_the_mean_cross_entropy_of_all_but_the_first_tokens():
    torch.manual_seed(6)
    speaker = build_model(LlamaShape(layers=1, width=64, inner=64, heads=2, kv_heads=1), 40, 0).eval()
    rows = torch.randint(40, (5, 9), generator=torch.Generator().manual_seed(0))
    expected = speaker(input_ids=rows, labels=rows).loss.item()
    assert mean_loss(speaker, rows) == pytest.approx(expected, rel=1e-5)


def test_questions_are_first_turns_and_a_bad_line_is_named(tmp_path):
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps({"question_id": 1, "turns": ["one?", "two?"]}) + "\n\n", encoding="utf-8")
    assert read_questions(file) == ["one?"]
    file.write_text('{"question_id": 1, "turns": ["one?"]}\n{"question_id": 2, "turns": []}\n', encoding="utf-8")
    with pytest.raises(TrainingError, match="line 2"):
        read_questions(file)
    with pytest.raises(TrainingError, match="cannot read"):
        read_questions(tmp_path / "none.jsonl")


def test_a_run_does_not_go_on_with_a_library_that_has_changed(tmp_path, little_library, monkeypatch):
    def begun(training, asked):
        (training.run / "target.ckpt").touch()

    monkeypatch.setattr("specnav.recipes.text.train._TextTraining.whole", begun)
    library = shutil.copytree(little_library, tmp_path / "library")
    config = TrainTextConfig(out=tmp_path / "out", run=tmp_path / "run", library=library)
    for _ in range(2):
        train_text(config)
    file = next(library.rglob("*.py"))
    file.write_text(file.read_text() + "\n\ndef another():\n    return 1\n")
    with pytest.raises(TrainingError, match="other settings or data"):
        train_text(config)


@pytest.mark.parametrize("name", ["text-target", "text-draft"])
def test_a_folder_with_other_content_is_not_replaced(tmp_path, name):
    (tmp_path / "out" / name).mkdir(parents=True)
    (tmp_path / "out" / name / "thesis.txt").touch()
    with pytest.raises(TrainingError, match=f"{name} has other content"):
        train_text(TrainTextConfig(out=tmp_path / "out", run=tmp_path / "run"))
    (tmp_path / "out" / name).rename(tmp_path / "out" / name.replace("text", "nav"))
    with pytest.raises(TrainingError, match=r"nav-.* has other content"):
        train_vlm(TrainVlmConfig(out=tmp_path / "out", data_dir=tmp_path / "run"))
    assert not (tmp_path / "run").exists()
