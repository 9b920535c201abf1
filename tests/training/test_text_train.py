"""A whole run: folders that the core loads, resume, and what each stage is taught."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch

from specdec.models import chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import ExitSample
from specnav.recipes.text.models import trained_model
from specnav.recipes.text.rows import encode_questions, own_rows
from specnav.recipes.text.task import TextTask, TextTaskSpec
from specnav.recipes.text.train import HELD_BACK, train_text

pytestmark = pytest.mark.slow


def test_the_folders_load_in_the_core_and_answer_as_measured(little_pair):
    _, result = little_pair
    target, draft = load_model(result.target), load_model(result.draft)
    assert target.vocab_size == draft.vocab_size == 400
    prompt = chat_prompt(target, "Return the sum of all things.")
    assert len(generate_local(target, prompt, GenerationOptions(max_new_tokens=12))) == 12
    prompts = encode_questions(target.tokenizer, ["Return the sum of all things."], 64)
    assert prompts == [list(prompt.ids)]


def test_the_folders_hold_float16_and_a_card_with_the_figures(little_pair):
    _, result = little_pair
    for folder in (result.target, result.draft):
        assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["dtype"] == "float16"
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert f"{result.figures[HELD_BACK].tau:.2f}" in card and "seed 3" in card
        assert (
            f"{result.target_losses['files']:.3f}" in card and f"{result.draft_losses['files']:.3f}" in card
        )


def test_training_lowers_the_loss(little_pair):
    _, result = little_pair
    assert result.target_losses["files"] < 5.9  # log(400) = 5.99


def test_a_finished_run_called_again_trains_nothing_and_gives_the_same(little_pair):
    config, result = little_pair
    made = {file: file.stat().st_mtime_ns for file in config.run.glob("*.ckpt")}
    assert train_text(config) == result
    assert {file: file.stat().st_mtime_ns for file in config.run.glob("*.ckpt")} == made


def test_a_run_killed_before_its_last_stage_goes_on_to_the_same_end(little_pair, tmp_path):
    config, result = little_pair
    shutil.copytree(config.run, tmp_path / "run")
    (tmp_path / "run" / "draft.ckpt").unlink()
    again = train_text(replace(config, run=tmp_path / "run", out=tmp_path / "models"))
    assert (again.draft_losses, again.figures) == (result.draft_losses, result.figures)


def test_a_run_with_other_settings_is_not_mixed_into_this_one(little_pair):
    config, _ = little_pair
    with pytest.raises(TrainingError, match="other settings"):
        train_text(replace(config, seed=4))


def spec_of(config) -> TextTaskSpec:
    return TextTaskSpec(config.run / "corpus.npz", config.target, 400, 0, 48)


def test_own_texts_take_their_share_of_the_rows_and_only_show_what_to_avoid(little_pair):
    config, _ = little_pair
    spec = replace(spec_of(config), own=config.run / "own-repair-1.jsonl", own_share=0.5)
    task = TextTask(spec, "cpu")
    ids, positions, learn, avoid = task.batch(torch.Generator().manual_seed(1), 8)
    assert ids.shape == positions.shape == learn.shape == avoid.shape == (8, 48)
    assert learn[:4].min() == 1 and learn[4:].max() == 0 and avoid[:4].max() == 0


def test_circling_texts_are_made_less_likely(little_pair):
    config, _ = little_pair
    circling = ExitSample((1, 2, 3, 4, 5, 6, 7, 8) * 4, 2)
    ids, learn, avoid = own_rows([circling], 32, 0, taught=False)
    assert learn.max() == 0 and 0 < float(avoid.sum()) < 20 and avoid[0, :16].max() == 0
    task = TextTask(spec_of(config), "cpu")
    optimiser = torch.optim.Adam(task.model.parameters(), lr=1e-2)
    positions = torch.arange(32)[None]
    losses = []
    for _ in range(12):
        loss, said = task.loss(ids, positions, learn, avoid)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(said["circling"]))
    assert losses[-1] < losses[0]


def test_a_draft_that_is_its_teacher_has_nothing_to_learn(little_pair):
    config, _ = little_pair
    teacher = config.run / "repair-1.ckpt"
    spec = replace(spec_of(config), start_from=teacher, teacher=(config.target, teacher))
    task = TextTask(replace(spec, own=config.run / "own.jsonl", own_share=0.5), "cpu")
    _, said = task.loss(*task.batch(torch.Generator().manual_seed(1), 8))
    assert float(said["apart"]) == pytest.approx(0.0, abs=1e-6)
    assert float(said["agrees"]) == 1.0


def test_padding_behind_a_text_is_not_learnt():
    ids, learn, avoid = own_rows([ExitSample((5,) * 7, 3)], 10, 0, taught=True)
    assert ids.tolist() == [[5] * 7 + [0] * 3]
    assert learn.tolist() == [[1.0] * 7 + [0.0] * 3] and avoid.max() == 0


def test_weights_of_a_checkpoint_are_the_saved_folder_s(little_pair):
    config, result = little_pair
    mine = trained_model(config.draft, 400, 0, config.run / "draft.ckpt").state_dict()
    saved = load_model(result.draft).hf_model.state_dict()
    assert all(torch.equal(mine[name].half().float(), value) for name, value in saved.items())
