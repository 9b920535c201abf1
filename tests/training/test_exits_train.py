"""Training exits: data files and their broken lines, what is learnt, kills, bad numbers, full disks, whole runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specdec.errors import OptionsError
from specdec.models import LoadedModel, chat_prompt, load_model
from specdec.verifying.exits import ExitAdapters, Exits, load_exits, save_exits
from specnav.recipes.errors import TrainingError
from specnav.recipes.exits.encoding import encode_conversations
from specnav.recipes.exits.reading import read_conversations
from specnav.recipes.exits.task import ExitTask, ExitTaskSpec, hidden_rows, weights_digest
from specnav.recipes.exits.train import TrainExitsConfig, _ExitsTraining, frequent_tokens, train_exits
from specnav.recipes.invented import own_answers
from specnav.recipes.loop import LoopSettings, _run, read_checkpoint
from specnav.recipes.samples import ExitSample, load_samples, save_samples
from specnav.recipes.stages import stages
from tests.helpers import tiny_models as tiny

pytestmark = pytest.mark.slow

torch.set_num_threads(1)
TALK = [{"from": "human", "value": "what is it?"}, {"from": "gpt", "value": "a small round thing"}]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Folders: llama, qwen2, qwen2vl; data files beside them."""
    folder = tmp_path_factory.mktemp("exits")
    tiny.build_llama(folder / "llama")
    tiny.build_qwen2vl(folder / "qwen2vl")
    build_qwen2(folder / "qwen2")
    more = [{"from": "user", "value": "and why?"}, {"from": "assistant", "value": "because of the wind"}]
    talks = [{"conversations": TALK}, {"conversations": TALK + more}, {"conversations": []}] * 3
    (folder / "sharegpt.json").write_text(json.dumps(talks, indent=1), encoding="utf-8")
    pictures = []
    for seed in range(4):
        (folder / f"{seed}.jpg").write_bytes(tiny.picture(seed))
        asked = [
            {"from": "human", "value": "<image>\nhow far is it?"},
            {"from": "gpt", "value": "two metres"},
        ]
        pictures.append({"image": f"{seed}.jpg", "conversations": asked + more})
    write_lines(folder / "spacellava.jsonl", pictures)
    write_lines(folder / "plain.jsonl", [{"text": f"words of text number {number}"} for number in range(8)])
    return folder


def build_qwen2(folder: Path) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = tiny.make_tokenizer()
    torch.manual_seed(3)
    config = Qwen2Config(
        vocab_size=len(tokenizer) + tiny.PADDING,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.2,
        eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_lines(file: Path, records: list) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def llama(root: Path) -> LoadedModel:
    return load_model(root / "llama", device="cpu")


@pytest.fixture(scope="module")
def vision(root: Path) -> LoadedModel:
    return load_model(root / "qwen2vl", device="cpu")


def config(root: Path, place: Path, target: str, data: str, **changed) -> TrainExitsConfig:
    whole = TrainExitsConfig(
        target=str(root / target), out=place / "exits", run=place / "run", data=str(root / data),
        lr=1e-2, epochs=4, batch=2, rows=16, seed=1,
    )  # fmt: skip
    return replace(whole, **changed)


# Whole runs, one for each type of target and form of data.


@pytest.mark.parametrize(
    ("target", "data", "layers"),
    [
        ("llama", "sharegpt.json", "all"),
        ("qwen2", "plain.jsonl", "1"),
        ("qwen2vl", "spacellava.jsonl", "every:1"),
    ],
)
def test_exits_are_trained_for_every_type_of_target(root, tmp_path, target, data, layers) -> None:
    before = {file.name: file.read_bytes() for file in (root / target).iterdir()}
    wanted = config(root, tmp_path, target, data, layers=layers)
    figures = train_exits(wanted)
    names = ["README.md", "curves.svg", "exits.json", "exits.safetensors"]
    assert sorted(file.name for file in wanted.out.iterdir()) == names
    exits = load_exits(wanted.out, load_model(root / target, device="cpu"))
    assert exits.layers == ((1,) if layers == "1" else (0, 1))
    assert exits.agreement == {
        layer: pytest.approx(share, abs=1e-4) for layer, share in figures.agreement.items()
    }
    card = (wanted.out / "README.md").read_text(encoding="utf-8")
    assert f"| 1 | 2 of 3 | {figures.untrained[1]:.1%} | {figures.agreement[1]:.1%}" in card
    curves = (wanted.out / "curves.svg").read_text(encoding="utf-8")
    assert curves.startswith("<?xml") and "agreement" in curves
    assert {file.name: file.read_bytes() for file in (root / target).iterdir()} == before
    if target == "llama":
        finished = (wanted.run / "exits.ckpt").stat().st_mtime_ns
        assert train_exits(wanted) == figures
        assert (wanted.run / "exits.ckpt").stat().st_mtime_ns == finished
        with pytest.raises(TrainingError, match="holds a run with other settings"):
            train_exits(replace(wanted, seed=2))


# What is learnt.


def spec_of(root: Path, target: str, file: Path) -> ExitTaskSpec:
    return ExitTaskSpec(str(root / target), file, (0, 1), 32, 24)


def samples_of(model: LoadedModel, root: Path, data: str, place: Path) -> Path:
    file = place / "samples.jsonl"
    save_samples(file, encode_conversations(model, read_conversations(root / data), 200))
    return file


@pytest.mark.parametrize(("target", "data"), [("llama", "sharegpt.json"), ("qwen2vl", "spacellava.jsonl")])
def test_training_brings_exits_nearer_to_the_final_one_and_leaves_the_target_as_it_was(
    root, tmp_path, request, target, data
) -> None:
    model = request.getfixturevalue("llama" if target == "llama" else "vision")
    task = ExitTask(spec_of(root, target, samples_of(model, root, data, tmp_path)), "cpu")
    frozen = weights_digest(task.target)
    optimiser = torch.optim.Adam(task.model.parameters(), lr=1e-2)
    batch = task.batch(torch.Generator().manual_seed(1), 3)
    assert batch[0].shape == (2, batch[1].shape[0], 64)
    losses = []
    for _ in range(25):
        loss, said = task.loss(*batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(said["loss"]))
    assert losses[-1] < 0.7 * losses[0] and 0 <= float(said["exit_0"]) <= 1
    assert all(weight.grad is None for weight in task.target.network.parameters())
    assert weights_digest(task.target) == frozen
    task.at_end()


def test_a_target_that_changed_by_one_bit_is_noticed(root, llama, tmp_path) -> None:
    task = ExitTask(spec_of(root, "llama", samples_of(llama, root, "sharegpt.json", tmp_path)), "cpu")
    weight = next(task.target.network.parameters())
    weight.data.view(torch.int32)[0, 0] ^= 1
    with pytest.raises(TrainingError, match=r"the weights of .*llama changed"):
        task.at_end()


def test_large_losses_are_computed_twice_with_the_same_gradients(root, llama, tmp_path, monkeypatch) -> None:
    task = ExitTask(spec_of(root, "llama", samples_of(llama, root, "sharegpt.json", tmp_path)), "cpu")
    torch.nn.init.normal_(task.model.up, std=0.1)
    batch = task.batch(torch.Generator().manual_seed(1), 2)
    gradients = []
    for limit in (1 << 40, 1):
        monkeypatch.setattr("specnav.recipes.exits.task.LARGE", limit)
        task.model.zero_grad()
        task.loss(*batch)[0].backward()
        gradients.append(task.model.down.grad.clone())
    torch.testing.assert_close(gradients[0], gradients[1])


def test_exits_learn_from_the_hidden_states_that_serving_sees(llama) -> None:
    encoded = llama.encode(chat_prompt(llama, "a question"))
    seen: dict[int, torch.Tensor] = {}
    row = llama.new_session().prefill(encoded, observer=seen.__setitem__)
    last = encoded.ids.shape[0] - 1
    hidden, final = hidden_rows(llama, encoded, torch.tensor([3, last]), (1,))
    assert torch.equal(hidden[0], seen[1][[3, last]])
    torch.testing.assert_close(llama.runner.logits(final)[1], row)
    assert not hidden.is_inference() and not final.is_inference()


# Samples: what of a text is learnt.


def test_only_answers_of_a_conversation_are_learnt(llama, root) -> None:
    sample = encode_conversations(llama, read_conversations(root / "sharegpt.json"), 500)[1]
    text = llama.tokenizer.decode(sample.ids[sample.start :])
    assert text.startswith("a small round thing") and text.endswith("because of the wind<|im_end|>")
    encoded, rows = sample.encode(llama)
    assert rows.start == sample.start - 1 and rows.stop == encoded.ids.shape[0] - 1


def test_rows_move_by_what_pictures_take(vision, root) -> None:
    samples = encode_conversations(vision, read_conversations(root / "spacellava.jsonl"), 500)
    assert len(samples) == 8  # two questions about each of four pictures
    encoded, rows = samples[0].encode(vision)
    said = encoded.ids[rows.start + 1 : rows.stop + 1].tolist()
    assert vision.tokenizer.decode(said) == "two metres<|im_end|>"


def test_the_targets_own_answers_are_greedy_where_they_should_be(llama) -> None:
    from specdec.models.local import generate_local
    from specdec.options import GenerationOptions

    prompts = [chat_prompt(llama, f"question {number}") for number in range(5)]
    samples = own_answers(llama, [ExitSample(prompt.ids, len(prompt.ids)) for prompt in prompts], seed=1)
    for sample, prompt in list(zip(samples, prompts, strict=True))[1:4]:
        answer = [token for token in sample.ids[sample.start :] if token not in llama.eos_token_ids]
        assert answer == generate_local(llama, prompt, GenerationOptions(max_new_tokens=128))


# Bad input: one line that names the line.


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"text": "good"}\n{"text": \n', "line 2: not JSON"),
        ('{"text": "good"}\n\n[]\n', "line 3: not an object with"),
        ('{"conversations": [{"from": "alien", "value": "x"}]}', "line 1: unknown speaker 'alien'"),
        ('{"conversations": [{"value": "x"}]}', "line 1: a message must be an object"),
        (
            '{"text": "good"}\n' + json.dumps({"image": "no.jpg", "conversations": TALK}),
            "line 2: picture .*no.jpg",
        ),
        (json.dumps({"image": 3, "conversations": TALK}), "line 1: images must be file names"),
        ('[\n{"text": "good"},\n{"text": "bad"\n]', "line 4: not JSON"),
        ('[\n{"text": "good"},\n\n{"words": "bad"}\n]', "entry 2: not an object with"),
        ('[\n{"text": "good"}', "line 2: not JSON"),
        ('{"text": "good"}\n' + "[" * 100_000, "line 2: not JSON"),
        ('{"text": "good"}\n{"text": "bad \\ud800"}', "line 2: .*surrogates not allowed"),
        ('{"conversations": [{"from": "human", "value": "\\udfff"}]}', "line 1: .*surrogates not allowed"),
        ('{"conversations": []}', "has no conversation"),
        ("", "has no conversation"),
    ],
)
def test_a_broken_line_of_a_data_file_is_named(tmp_path, content, said) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(TrainingError, match=said) as caught:
        read_conversations(file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_pictures_that_are_none_and_models_without_eyes_are_told_before_training(
    tmp_path, llama, vision
) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    found = read_conversations(write_lines(tmp_path / "d.jsonl", [{"image": "a.jpg", "conversations": TALK}]))
    with pytest.raises(TrainingError, match=r"line 1: .*a.jpg is not a picture"):
        encode_conversations(vision, found, 100)
    with pytest.raises(TrainingError, match=r"line 1: .*llama accepts no pictures"):
        encode_conversations(llama, found, 100)


def test_placeholders_in_words_do_not_become_pictures(vision, tmp_path) -> None:
    talk = [{"from": "human", "value": "a <|image_pad|> b"}, {"from": "gpt", "value": "c <|image_pad|> d"}]
    found = read_conversations(
        write_lines(tmp_path / "d.jsonl", [{"conversations": talk}, {"text": "<|image_pad|> e"}])
    )
    for sample in encode_conversations(vision, found, 100):
        assert vision.image_pad_id not in sample.ids
        sample.encode(vision)


def test_a_run_does_not_go_on_with_other_pictures_under_the_same_names(root, tmp_path, monkeypatch) -> None:
    def begin(training) -> None:
        (training.config.run / "samples.jsonl").write_text("")

    monkeypatch.setattr("specnav.recipes.exits.train._ExitsTraining.whole", begin)
    (tmp_path / "a.jpg").write_bytes(tiny.picture(1))
    data = write_lines(tmp_path / "d.jsonl", [{"image": "a.jpg", "conversations": TALK}])
    wanted = config(root, tmp_path, "qwen2vl", str(data))
    train_exits(wanted)
    train_exits(wanted)
    (tmp_path / "a.jpg").write_bytes(tiny.picture(2))
    with pytest.raises(TrainingError, match="other settings or data"):
        train_exits(wanted)


def test_wrong_arguments_are_told_before_anything_is_made(root, tmp_path) -> None:
    good = config(root, tmp_path, "llama", "sharegpt.json")
    for changed, error, said in (
        (
            {"layers": "2"},
            OptionsError,
            r"exit layers \[2\] are out of range: a model of 3 layers takes 0 to 1",
        ),
        ({"lr": 0.0}, TrainingError, "lr must be a number, at least 1e-09, got 0.0"),
        ({"lr": float("nan")}, TrainingError, "lr must be a number, at least 1e-09, got nan"),
        ({"data": "/nowhere.json"}, TrainingError, "does not exist"),
    ):
        with pytest.raises(error, match=said):
            train_exits(replace(good, **changed))
        assert not good.run.exists()


# The loop: kills, bad numbers, full disks.


class _Reports(list):
    """Takes what a worker tells its parent."""

    put = list.append

    def close(self) -> None: ...

    def join_thread(self) -> None: ...


def loop_settings(folder: Path, steps: int) -> LoopSettings:
    folder.mkdir(exist_ok=True)
    return LoopSettings("exits", folder, steps, 2, 1e-2, 0, checkpoint_every=3, compile=False)


def test_some_tokens_teach_what_all_teach(root, llama, tmp_path) -> None:
    """A loss over nearly all of the vocabulary comes near to that over all; what is likely is always looked at."""
    spec = spec_of(root, "llama", samples_of(llama, root, "sharegpt.json", tmp_path))
    whole, most = ExitTask(spec, "cpu"), ExitTask(replace(spec, tokens=llama.vocab_size - 2), "cpu")
    most.model.load_state_dict(whole.model.state_dict())
    batch = whole.batch(torch.Generator().manual_seed(0), 2)
    hidden, last, among, _ = most.batch(torch.Generator().manual_seed(0), 2)
    assert torch.equal(hidden, batch[0]) and torch.equal(last, batch[1])
    assert set(llama.runner.logits(last).argmax(-1).tolist()) <= set(among.tolist())
    loss, said = most.loss(hidden, last, among, _)
    expected, known = whole.loss(*batch)
    assert float(loss) == pytest.approx(float(expected), rel=0.05)
    assert float(said["agrees"]) == pytest.approx(float(known["agrees"]), abs=0.1)


def test_hidden_states_are_worked_out_once(root, llama, tmp_path, monkeypatch) -> None:
    task = ExitTask(spec_of(root, "llama", samples_of(llama, root, "sharegpt.json", tmp_path)), "cpu")
    first = [task._rows(index) for index in range(len(task.samples))]
    monkeypatch.setattr("specnav.recipes.exits.task.all_rows", lambda *_: pytest.fail("asked again"))
    assert all(task._rows(index) is known for index, known in enumerate(first))


@pytest.fixture
def task(root, llama, tmp_path) -> ExitTask:
    return ExitTask(spec_of(root, "llama", samples_of(llama, root, "sharegpt.json", tmp_path)), "cpu")


def fresh(task: ExitTask) -> ExitTask:
    torch.manual_seed(0)
    torch.nn.init.normal_(task.model.down, std=0.1)
    torch.nn.init.zeros_(task.model.up)
    return task


def run(task: ExitTask, settings: LoopSettings) -> dict:
    _run(fresh(task), settings, 0, 1, "cpu", _Reports())
    return read_checkpoint(settings.checkpoint)


def test_a_killed_run_goes_on_to_the_same_weights(task, tmp_path, monkeypatch) -> None:
    whole = run(task, loop_settings(tmp_path / "whole", 8))
    draw, drawn = task.batch, []

    def killed(generator, size):
        drawn.append(size)
        if len(drawn) == 5:
            raise KeyboardInterrupt
        return draw(generator, size)

    monkeypatch.setattr(task, "batch", killed)
    settings = loop_settings(tmp_path / "killed", 8)
    with pytest.raises(KeyboardInterrupt):
        run(task, settings)
    assert read_checkpoint(settings.checkpoint)["step"] == 3
    again = run(task, settings)
    assert again["finished"] and all(
        torch.equal(again["model"][name], whole["model"][name]) for name in ("down", "up")
    )


def test_a_loss_that_is_no_number_stops_and_the_last_good_checkpoint_stays(
    task, tmp_path, monkeypatch
) -> None:
    draw, drawn = task.batch, []

    def poisoned(generator, size):
        drawn.append(size)
        hidden, last = draw(generator, size)
        return (hidden * float("nan") if len(drawn) == 5 else hidden), last

    monkeypatch.setattr(task, "batch", poisoned)
    settings = loop_settings(tmp_path / "run", 8)
    with pytest.raises(
        TrainingError, match=r"the loss of update 5 is NaN or infinite; .*exits.ckpt is unchanged"
    ):
        run(task, settings)
    kept = read_checkpoint(settings.checkpoint)
    assert kept["step"] == 3 and all(bool(value.isfinite().all()) for value in kept["model"].values())
    assert run(task, settings)["finished"]


def test_weights_that_are_no_numbers_are_never_saved(task, tmp_path, monkeypatch) -> None:
    settings = loop_settings(tmp_path / "run", 3)
    monkeypatch.setattr(
        "specnav.recipes.loop.MuonAdamW.step", lambda self, lr: task.model.up.data.fill_(float("inf"))
    )
    with pytest.raises(TrainingError, match="NaN or infinite"):
        run(task, settings)
    assert not settings.checkpoint.exists()


def test_a_full_disk_is_told_and_the_former_checkpoint_stays(task, tmp_path, monkeypatch) -> None:
    settings = loop_settings(tmp_path / "run", 8)
    save, saved = torch.save, []

    def full(state, file):
        saved.append(file)
        if len(saved) == 2:
            Path(file).write_bytes(b"half")
            raise OSError(28, "No space left on device")
        save(state, file)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(
        TrainingError, match=r"exits.ckpt cannot be written .*No space left on device.*free some space"
    ):
        run(task, settings)
    assert read_checkpoint(settings.checkpoint)["step"] == 3 and not list(settings.folder.glob("*.tmp"))
    assert run(task, settings)["finished"]


def test_samples_that_cannot_be_written_leave_the_former_ones(tmp_path, monkeypatch) -> None:
    file = tmp_path / "samples.jsonl"
    save_samples(file, [ExitSample((1, 2, 3), 1)])

    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(TrainingError, match="No space left on device"):
        save_samples(file, [])
    assert load_samples(file) == [ExitSample((1, 2, 3), 1)]


def test_answers_to_questions_of_our_own_are_cut_to_the_length_too(root, llama, tmp_path, monkeypatch) -> None:
    answered = [ExitSample(tuple(range(1, 9)), start) for start in (3, 7)]
    monkeypatch.setattr("specnav.recipes.exits.train.questions_about_python", lambda *given: ([], []))
    monkeypatch.setattr("specnav.recipes.exits.train.own_answers", lambda *given: answered)

    def made(length: int) -> list[ExitSample]:
        with stages() as shown:
            wanted = config(root, tmp_path, "llama", "", length=length)
            return _ExitsTraining(wanted, llama, (0,), shown)._invented()[0]

    assert [one.ids for one in made(6)] == [(1, 2, 3, 4, 5, 6)]
    with pytest.raises(TrainingError, match="within 3 tokens: give a larger length"):
        made(3)


def test_a_full_disk_at_the_end_leaves_the_former_exits(root, tmp_path) -> None:
    from specnav.recipes.folders import appearing_at_once, roomy

    out = shutil.copytree(root / "llama", tmp_path / "out")
    said = r"out cannot be written \(No space left"
    with pytest.raises(TrainingError, match=said), roomy(out), appearing_at_once(out):
        raise OSError(28, "No space left on device")
    assert (out / "config.json").exists()


def test_what_the_target_says_often_is_counted_and_the_prompt_is_not(root: Path, tmp_path: Path) -> None:
    samples = [ExitSample((9, 9, 9, 5, 6), 3), ExitSample((7, 5, 5, 8), 1)]
    assert frequent_tokens(samples, 2) == (5, 6)
    model = load_model(root / "llama")
    adapters = ExitAdapters(1, model.runner.hidden_size, 4)
    save_exits(tmp_path, Exits(model, adapters, (0,), {0: 0.5}, frequent_tokens(samples, 3)))
    exits = load_exits(tmp_path, model)
    assert exits.frequent == (5, 6, 8) and exits.pick([0]).frequent == (5, 6, 8)
