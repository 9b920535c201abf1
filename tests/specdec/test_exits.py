"""Early exits: shapes of the published ones, shortlists, files that know their backbone, layers that are refused."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from specdec.errors import ModelError, OptionsError
from specdec.models import LoadedModel, chat_prompt, load_model
from specdec.verifying.exits import (
    ExitAdapters,
    Exits,
    best,
    choose_layers,
    fingerprint,
    load_exits,
    save_exits,
    usual_width,
)
from specnav.bench.data.papers import figures
from tests.helpers.servers import Pair
from tests.specdec.random_exits import random_exits


@dataclass(frozen=True)
class Config:
    """Of a model as its makers publish it: what an adapter's size depends on."""

    hidden_size: int
    num_hidden_layers: int


CONFIGS = {
    "Vicuna-7B": (Config(4096, 32), "vicuna7b"),
    "Llama-2-7B": (Config(4096, 32), "llama2_7b"),
    "Vicuna-13B": (Config(5120, 40), "vicuna13b"),
    "Qwen2-VL-7B": (Config(3584, 28), "qwen2vl_7b"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_published_adapters_have_the_papers_number_of_exits_and_of_parameters(name: str) -> None:
    config, key = CONFIGS[name]
    paper = figures()["fsd_000"]["exits"][key]
    layers = choose_layers("all", config.num_hidden_layers)
    adapters = ExitAdapters(len(layers), config.hidden_size, usual_width(config.hidden_size), device="meta")
    count = sum(parameter.numel() for parameter in adapters.parameters())
    assert len(layers) == paper["exits"]
    assert count == pytest.approx(paper["params_m"] * 1e6, rel=0.01)


def hidden_after(model: LoadedModel, layers: tuple[int, ...], text: str = "a question") -> torch.Tensor:
    """What a LayerObserver sees of a prompt, [layers, rows, hidden_size]."""
    seen: dict[int, torch.Tensor] = {}
    model.new_session().prefill(model.encode(chat_prompt(model, text)), seen.__setitem__)
    return torch.stack([seen[layer] for layer in layers])


def test_an_untrained_exit_is_the_models_own_head_on_an_early_layer(pair: Pair) -> None:
    model = pair.target
    exits = Exits(model, ExitAdapters(2, model.runner.hidden_size, 16), (0, 1))
    hidden = hidden_after(model, (0, 1))
    torch.testing.assert_close(exits.logits(1, hidden[1]), model.runner.logits(hidden[1]))


def test_the_exit_is_a_bottleneck_added_to_the_hidden_state(pair: Pair) -> None:
    model, exits = pair.target, random_exits(pair.target)
    x = hidden_after(model, (0,))[0]
    down, up = exits.adapters.down[0], exits.adapters.up[0]
    normed = x / x.pow(2).mean(-1, keepdim=True).sqrt()
    inner = normed @ down.T
    wanted = model.runner.logits(x + (inner * torch.sigmoid(inner)) @ up.T)
    got = exits.logits(0, x)
    assert got.dtype == torch.float32 and got.shape == (x.shape[0], model.vocab_size)
    torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)


def test_a_shortlist_gives_the_full_heads_logits_of_its_ids(pair: Pair) -> None:
    exits = random_exits(pair.target)
    hidden = hidden_after(pair.target, (0, 1))
    ids = [7, 3, pair.target.vocab_size - 1]
    short = exits.shortlist(ids)
    assert short.ids.tolist() == ids
    for layer in (0, 1):
        full = exits.logits(layer, hidden[layer])
        torch.testing.assert_close(
            exits.logits(layer, hidden[layer], short), full[:, ids], atol=1e-3, rtol=1e-4
        )


def test_picked_exits_are_those_of_the_whole(pair: Pair) -> None:
    exits = random_exits(pair.target)
    hidden = hidden_after(pair.target, (0, 1))
    picked = exits.pick([1])
    assert picked.layers == (1,) and picked.agreement == {1: 0.5}
    assert picked.parameter_count * 2 == exits.parameter_count
    torch.testing.assert_close(picked.logits(1, hidden[1]), exits.logits(1, hidden[1]))
    with pytest.raises(ModelError, match="layer 0 has no exit: there are exits after 1"):
        picked.logits(0, hidden[0])


def test_confidence_is_the_largest_probability() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 0.0, 0.0]])
    place, confidence = best(logits)
    assert place.tolist() == [1, 0]
    torch.testing.assert_close(confidence, logits.softmax(-1).amax(-1))


@pytest.mark.parametrize("ids", [[], [-1], [10**6]])
def test_a_shortlist_of_impossible_ids_is_refused(pair: Pair, ids: list[int]) -> None:
    with pytest.raises(ModelError, match="a shortlist takes ids from 0 to"):
        random_exits(pair.target).shortlist(ids)


def test_looking_at_the_layers_changes_nothing_of_the_forward(pair: Pair) -> None:
    model, exits = pair.target, random_exits(pair.target)
    encoded = model.encode(chat_prompt(model, "hello"))
    guesses = []

    def observer(layer: int, hidden: torch.Tensor) -> None:
        if layer in exits.layers:
            guesses.append(exits.logits(layer, hidden[-1:]))

    assert torch.equal(model.new_session().prefill(encoded, observer=observer), model.new_session().prefill(encoded))
    assert len(guesses) == 2


def test_saved_exits_come_back_as_they_were_to_half_precision(pair: Pair, tmp_path: Path) -> None:
    exits = random_exits(pair.target)
    save_exits(tmp_path, exits)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["exits.json", "exits.safetensors"]
    loaded = load_exits(tmp_path, pair.target)
    assert loaded.layers == exits.layers and loaded.agreement == exits.agreement
    for mine, saved in zip(exits.adapters.parameters(), loaded.adapters.parameters(), strict=True):
        assert torch.equal(mine.half().float(), saved) and saved.dtype == pair.target.dtype


def test_exits_of_another_backbone_are_refused_in_one_line(pair: Pair, tmp_path: Path) -> None:
    save_exits(tmp_path, random_exits(pair.target))
    with pytest.raises(
        ModelError, match=r"belong to \w+-target.* has other weights: train exits for it"
    ) as caught:
        load_exits(tmp_path, pair.draft)
    assert "\n" not in str(caught.value)


def test_exits_of_another_architecture_are_refused(
    text_pair: Pair, vision_pair: Pair, tmp_path: Path
) -> None:
    save_exits(tmp_path, random_exits(text_pair.target))
    with pytest.raises(ModelError, match="has another architecture"):
        load_exits(tmp_path, vision_pair.target)


def test_one_changed_matrix_is_another_backbone(text_pair: Pair, model_root: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(model_root / "text-target", tmp_path / "changed")
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"] += 0.05
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    mine, other = fingerprint(text_pair.target), fingerprint(load_model(folder, device="cpu"))
    assert mine.difference(other) == "other weights" and mine.kept == other.kept


@pytest.mark.slow
def test_a_backbone_in_another_number_type_or_quantised_is_the_same(pair: Pair) -> None:
    mine = fingerprint(pair.target)
    for how in ({"dtype": "bfloat16"}, {"dtype": "float16"}, {"quantize": "8bit"}):
        other = load_model(pair.target.path, device="cpu", **how)
        assert mine.difference(fingerprint(other)) == ""


def test_half_written_and_broken_folders_are_told_in_one_line(pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no early exits"):
        load_exits(tmp_path, pair.target)
    save_exits(tmp_path, random_exits(pair.target))
    good = (tmp_path / "exits.json").read_text(encoding="utf-8")
    for broken, message in (
        ("{", "holds no usable early exits"),
        ('{"x":' * 100_000, "holds no usable early exits"),
        (good.replace('"width": 16', '"width": -1'), "holds no usable early exits"),
        (good.replace('"width": 16', f'"width": {10**30}'), "holds no usable early exits"),
        (good.replace('"schema": 1', '"schema": 9'), "of schema 9, but this version needs 1"),
        (good.replace('"width": 16', '"width": 17'), "does not describe"),
    ):
        (tmp_path / "exits.json").write_text(broken, encoding="utf-8")
        with pytest.raises(ModelError, match=message) as caught:
            load_exits(tmp_path, pair.target)
        assert "\n" not in str(caught.value)
    (tmp_path / "exits.json").write_text(good, encoding="utf-8")
    (tmp_path / "exits.safetensors").write_bytes(b"short")
    with pytest.raises(ModelError, match="holds no usable early exits"):
        load_exits(tmp_path, pair.target)


def test_files_that_cannot_be_written_leave_the_former_ones(pair: Pair, tmp_path: Path, monkeypatch) -> None:
    save_exits(tmp_path, random_exits(pair.target))
    before = (tmp_path / "exits.safetensors").read_bytes()

    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ModelError, match=r"cannot be written \(No space left on device\)"):
        save_exits(tmp_path, random_exits(pair.target, seed=1))
    assert (tmp_path / "exits.safetensors").read_bytes() == before
    assert load_exits(tmp_path, pair.target).layers == (0, 1)


@pytest.mark.parametrize(
    ("spec", "layers"),
    [
        ("all", (0, 1, 2, 3, 4, 5, 6)),
        ("every:2", (1, 3, 5)),
        ("every:4", (3,)),
        ("5,1,3", (1, 3, 5)),
        ("0", (0,)),
    ],
)
def test_layers_are_all_every_so_many_or_a_list(spec: str, layers: tuple[int, ...]) -> None:
    assert choose_layers(spec, 8) == layers


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("7", "out of range: a model of 8 layers takes 0 to 6"),
        ("1,99", "out of range"),
        ("-1", "out of range"),
        ("every:8", "no layer of 8 was chosen"),
        ("every:0", "cannot be read: give all, every:K or numbers"),
        ("some", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_impossible_layers_are_refused(spec: str, message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        choose_layers(spec, 8)


def test_exits_out_of_range_of_a_model_are_refused(pair: Pair) -> None:
    size = pair.target.runner.hidden_size
    with pytest.raises(
        ModelError, match=r"exit layers \[1, 2\] are out of range: a model of 3 layers takes 0 to 1"
    ):
        Exits(pair.target, ExitAdapters(2, size, 16), (1, 2))
    with pytest.raises(ModelError, match="do not fit"):
        Exits(pair.target, ExitAdapters(1, size, 16), (0, 1))


@pytest.mark.slow
def test_a_quantised_model_keeps_a_head_whose_rows_can_be_picked(model_root: Path) -> None:
    model = load_model(model_root / "text-target", device="cpu", quantize="8bit")
    exits = random_exits(model)
    assert exits.logits(0, hidden_after(model, (0,))[0], exits.shortlist([1, 2])).shape[1] == 2
