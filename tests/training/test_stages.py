"""Stages: resume after a kill, saved folders equal the trained models, wrong arguments are reported in one line."""

import io
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image

from spec_vlm_nav.language.prompting import PromptSpec, build_prompt
from specdec.models import load_model
from specnav.recipes.architecture import (
    DRAFT_TEXT,
    TARGET_TEXT,
    TrainedVisionShape,
    export_weights,
    import_weights,
    save_model_folder,
)
from specnav.recipes.decoder import TrainableDecoder
from specnav.recipes.errors import TrainingError
from specnav.recipes.loop import LoopSettings, fit, read_checkpoint
from specnav.recipes.questions import ANSWER, PREFIX, QuestionEncoder, attention_mask, image_positions
from specnav.recipes.speaker import ModelSpeaker
from specnav.recipes.tower import TrainableTower, patchify
from specnav.recipes.vlm import TrainVlmConfig, train_vlm
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow

torch.set_num_threads(1)
ANSWER_TEXT = "I see the silver bottle, left 20 degrees, about 1.5 m, clear. The next action is turn left 15 degree."


class Toy:
    """A task small enough for a test: fit a line."""

    def __init__(self, device):
        self.model = torch.nn.Linear(16, 16)

    def batch(self, generator, size):
        x = torch.randn(size, 16, generator=generator)
        return x, 2 * x

    def loss(self, x, y):
        total = (self.model(x) - y).pow(2).mean()
        return total, {"loss": total.detach()}


def settings(folder, steps):
    return LoopSettings("toy", folder, steps, 8, 1e-2, 0, checkpoint_every=5, compile=False)


def test_a_killed_stage_goes_on_from_its_checkpoint_to_the_same_weights(tmp_path):
    """Killed hard in the middle (by the process's own follower), it ends at the same step with the same weights."""
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from tests.training.test_stages import Toy, settings\n"
        "from specnav.recipes.loop import fit\n"
        "def stop(step, total, said):\n"
        "    if step >= 50: os.kill(os.getpid(), 9)\n"
        "if __name__ == '__main__':\n"
        "    fit(Toy, (), settings(Path(sys.argv[2]), 100), 1, stop)\n"
    )
    file = tmp_path / "killed.py"
    file.write_text(script)
    here = str(Path(__file__).resolve().parents[2])
    done = subprocess.run([sys.executable, str(file), here, str(tmp_path / "a")], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    checkpoint = tmp_path / "a" / "toy.ckpt"
    # Its worker ends by itself.
    until(lambda: checkpoint.exists() and time.time() - checkpoint.stat().st_mtime >= 1.0, 30)
    for name in ("a", "b"):
        assert fit(Toy, (), settings(tmp_path / name, 100), 1, lambda *said: None) == 100
    one, other = (read_checkpoint(tmp_path / name / "toy.ckpt") for name in ("a", "b"))
    assert one["step"] == other["step"] == 100 and one["finished"]
    assert torch.equal(one["model"]["weight"], other["model"]["weight"])


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A random pair, saved in float32: (folder, [(tower, decoder)] of target and draft)."""
    torch.manual_seed(0)
    folder, made = tmp_path_factory.mktemp("pair"), []
    for name, shape in (("nav-target", TARGET_TEXT), ("nav-draft", DRAFT_TEXT)):
        tower, decoder = TrainableTower(TrainedVisionShape()).eval(), TrainableDecoder(shape, 192).eval()
        weights = export_weights(tower.state_dict(), decoder.state_dict())
        save_model_folder(folder / name, TrainedVisionShape(out=shape.width), shape, weights, dtype=torch.float32)
        made.append((tower, decoder))
    return folder, made


def frame_and_png(seed=0):
    frame = np.random.default_rng(seed).integers(0, 255, (140, 224, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(frame).save(out, "PNG")
    return frame, out.getvalue()


@pytest.mark.parametrize(("index", "name"), [(0, "nav-target"), (1, "nav-draft")])
def test_a_saved_folder_gives_the_logits_of_the_training_form(pair, index, name):
    folder, made = pair
    tower, decoder = made[index]
    model = load_model(folder / name, device="cpu")
    encoder = QuestionEncoder(model.tokenizer)
    row, pad, _ = encoder.row("find the silver bottle", ANSWER_TEXT)
    frame, png = frame_and_png()
    prompt = build_prompt(PromptSpec.from_model_folder(folder / name), model.tokenizer, "find the silver bottle", [png])
    encoded = model.encode(prompt)
    assert encoded.ids.tolist() == row[pad : PREFIX + 46]
    patches = patchify(torch.from_numpy(frame)[None])
    assert torch.allclose(encoded.pixel_values.view(160, 3, 2, 196)[:, :, 0].reshape(160, -1), patches[0], atol=1e-5)
    pads = torch.tensor([pad])
    positions, mask = image_positions(pads, len(row)), attention_mask(pads, len(row))
    with torch.no_grad():
        wanted, _, _ = decoder(torch.tensor([row]), tower(patches), positions, mask, PREFIX, ANSWER)
    session = model.new_session()
    said = encoder.encode(ANSWER_TEXT)
    logits = torch.cat([session.prefill(encoded)[None], session.extend(said)])
    assert torch.allclose(logits, wanted[0, : len(logits), : logits.shape[1]], atol=1e-4)


def test_batched_answers_are_those_of_specdec(pair):
    from specdec.models.local import generate_local
    from specdec.options import GenerationOptions

    folder, _ = pair
    speaker, model = ModelSpeaker(folder / "nav-draft"), load_model(folder / "nav-draft", device="cpu")
    spec = PromptSpec.preset("tiny_nav")
    names = ["find the silver bottle", "find the red chair"]
    pictures = [frame_and_png(seed) for seed in (1, 2)]
    frames = [frame for frame, _ in pictures]
    said = speaker.say(names, frames)
    runs = [Mock(episode=Mock(instruction=name)) for name in names]
    words = [model.tokenizer.decode(ids, skip_special_tokens=True) for ids in said]
    assert speaker.answer(runs, frames, Mock()) == words
    assert model.tokenizer.decode(speaker.ids(ANSWER_TEXT)) == f"{ANSWER_TEXT}<|im_end|>"
    for instruction, (frame, png), ids in zip(names, pictures, said, strict=True):
        prompt = build_prompt(spec, model.tokenizer, instruction, [png])
        alone = generate_local(model, prompt, GenerationOptions(max_new_tokens=len(ids)))
        assert [t for t in ids if t not in model.eos_token_ids] == list(alone)
        other = (ids[-1] + 1) % model.vocab_size
        assert speaker.foretells(instruction, frame, [*ids[:-1], other]) == [True] * (len(ids) - 1) + [False]


def test_weights_of_a_folder_are_those_that_were_saved(pair):
    folder, [(tower, decoder), _] = pair
    found = import_weights(load_model(folder / "nav-target", device="cpu").network.state_dict())
    for mine, trained in zip(found, (tower.state_dict(), decoder.state_dict()), strict=True):
        assert trained.keys() - mine.keys() <= {"ground.weight", "ground.bias"}
        assert all(torch.allclose(value, trained[name], atol=1e-7) for name, value in mine.items())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"frames": 2500}, "frames is 2500: use a multiple of 1000"),
        ({"target_steps": 0}, "target_steps is 0: use 1 or more"),
        ({"batch": 31}, "even batch"),
        ({"seed": -1}, "seed must be a whole number from 0"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(tmp_path, wrong, message):
    with pytest.raises(TrainingError, match=message) as caught:
        train_vlm(TrainVlmConfig(out=tmp_path, **wrong))
    assert "\n" not in str(caught.value)


def test_a_pair_is_not_continued_with_other_settings(tmp_path, monkeypatch):
    """It would take frames, caches and stages that were made with the earlier ones."""

    def killed(data, *given):
        data.frames.mkdir(exist_ok=True)
        raise ConnectionError

    monkeypatch.setattr("specnav.recipes.vlm.make_frames", killed)
    for out in ("a", "b"):
        with pytest.raises(ConnectionError):
            train_vlm(TrainVlmConfig(tmp_path / out, tmp_path / "work", seed=7))
    with pytest.raises(TrainingError, match=r"other settings or data: .* another folder with --work"):
        train_vlm(TrainVlmConfig(tmp_path / "a", tmp_path / "work", seed=8))


def test_an_unreadable_checkpoint_says_what_to_do(tmp_path):
    file = tmp_path / "toy.ckpt"
    file.write_bytes(b"not a checkpoint")
    with pytest.raises(TrainingError, match="delete it to train this stage again"):
        read_checkpoint(file)
