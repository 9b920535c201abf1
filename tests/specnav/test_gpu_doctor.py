"""`specnav doctor --gpu`, on the CPU: the same measurements that a GPU gets."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from specdec.models import load_model
from specnav.cli.app import app
from specnav.doctor.gpu import run as gpu
from specnav.doctor.gpu.choosing import agreement_of, choices
from specnav.doctor.gpu.counting import Launches, Reads
from specnav.doctor.gpu.measuring import count_work, find_flips, read_bytes
from specnav.doctor.gpu.records import Flips, ForwardTime, ModelFindings
from tests.helpers import tiny_models as tiny

pytestmark = pytest.mark.slow

QUICK = gpu.GpuDoctorConfig(rows=(1, 4), contexts=(32,), gamma=3, variants=("float32",), seconds=0.1)


def test_reads_and_launches_are_counted() -> None:
    numbers = torch.arange(6.0)
    with Reads() as reads:
        numbers.sum().item()
        float(numbers[0])
        int(numbers[1])
        bool(numbers[2] > 0)
        numbers.tolist()
        numbers[numbers > 2]
        numbers[torch.tensor([1, 2])]  # no read: the size of what comes is known
        numbers.nonzero()
    assert reads.count == 7
    with Launches() as launches:
        ((numbers + 1) * 2).view(2, 3)[0]
    assert launches.count == 2


def test_weights_that_a_forward_reads_are_told_from_those_it_does_not() -> None:
    text, vision = (
        load_model(tiny.built_pairs() / name, dtype="float32") for name in ("text-target", "vision-target")
    )
    for model in (text, vision):
        tower = sum(p.numel() for n, p in model.network.named_parameters() if "visual." in n)
        every = 4 * sum(p.numel() for p in model.network.parameters())
        inner = model.network.model.language_model if model.is_multimodal else model.network.model
        tied = model.network.lm_head.weight is inner.embed_tokens.weight
        embeddings = 4 * inner.embed_tokens.weight.numel()
        assert read_bytes(model) == every - 4 * tower - (0 if tied else embeddings)


def test_a_verification_waits_for_the_device_once() -> None:
    model = load_model(tiny.built_pairs() / "text-target", dtype="float32")
    launches, verify_reads, _ = count_work(model, 4)
    assert verify_reads == 1
    assert launches > 10 * model.runner.layer_count


def test_a_margin_above_the_noise_is_no_near_tie() -> None:
    assert Flips(10, 1, noise=0.1, margin=0.2).sound
    assert not Flips(10, 1, noise=0.1, margin=0.21).sound
    model = load_model(tiny.built_pairs() / "text-target", dtype="float32")
    found = find_flips(model, [gpu.chat_prompt(model, words) for words in gpu.ASKED[:2]], 12)
    assert found.picks == 0 and found.sound and 0 < found.noise < 1e-3


def test_auto_leaves_a_far_cloud_alone_and_drafts_for_a_near_one() -> None:
    target = load_model(tiny.built_pairs() / "text-target", dtype="float32")
    agreed = agreement_of(target, target, [gpu.chat_prompt(target, gpu.ASKED[0])], 12)
    assert agreed and all(map(all, agreed))
    times = [ForwardTime(rows, 32, 40.0, 30.0) for rows in (1, 4, 6)]
    slow = ModelFindings("t", "target", "bfloat16", forwards=tuple(times))
    quick = ModelFindings("d", "draft", "4bit", forwards=tuple(replace(one, ms=4.0) for one in times))
    plans = choices(slow, quick, [[True] * 30], 5, (0.0, 400.0))
    assert plans[0].plan.startswith(("chain", "stream")) and "RTT 400" in plans[1].why
    assert choices(slow, quick, [[False] * 30], 5, (400.0,))[0].plan == "alone"


def test_a_pair_is_measured_and_told_as_json_and_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    target_folder, draft_folder = (
        str(tiny.built_pairs() / name) for name in ("vision-target", "vision-draft")
    )
    assert gpu.run_gpu_doctor(replace(QUICK, json=True, model=target_folder, draft=draft_folder)) == 0
    found = json.loads(capsys.readouterr().out)
    target, draft = found["models"]
    assert (target["role"], draft["role"]) == ("target", "draft")
    assert target["loaded_bytes"] == pytest.approx(target["planned_bytes"], rel=0.03)
    assert [one["rows"] for one in target["forwards"]] == [1, 4]
    assert all(one["floor_ms"] > 0 and one["over_floor"] > 0 for one in target["forwards"])
    assert target["vision"]["tokens"] > 0 and target["flips"]["sound"]
    assert 0 <= found["agreement"] <= 1 and [one["rtt_ms"] for one in found["auto"]] == [0, 15, 40, 80]
    assert found["targets"] == {"verify_over_floor": 1.3, "exits_cost": 0.05}


def test_the_shipped_pair_is_measured_by_the_command() -> None:
    flags = ["--seconds", "0.1", "--rows", "1,4", "--contexts", "32", "--gamma", "3", "--variants", "float32"]
    people = CliRunner().invoke(app, ["doctor", "--gpu", *flags])
    assert people.exit_code == 0, people.output
    for words in ("memory bandwidth", "picks that flip", "(layer ", "choice of `auto`", "A CPU has no launches"):
        assert words in people.output


def test_a_model_that_does_not_fit_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_free_bytes", lambda device: 1000)
    config = gpu.GpuDoctorConfig(str(tiny.built_pairs() / "text-target"), variants=("float32",))
    found = gpu.measure_model(config.model, "target", "float32", config, torch.device("cpu"))
    assert "quantise it" in found.error and not found.forwards and found.planned_bytes > 0


def test_a_model_that_fills_the_memory_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter((1 << 40, 3000))
    monkeypatch.setattr(gpu, "_free_bytes", lambda device: next(free))
    sizes: list[int] = []
    monkeypatch.setattr(gpu.measuring, "bandwidth_of", lambda device, size, seconds: sizes.append(size) or 1e9)
    found = gpu.measure_model(str(tiny.built_pairs() / "text-target"), "target", "float32", QUICK, torch.device("cpu"))
    assert not found.error and found.forwards and sizes == [1500]


def test_what_was_measured_is_shown_where_the_pair_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*given: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(gpu, "agreement_of", full)
    pair = {role: str(tiny.built_pairs() / f"text-{name}") for role, name in (("model", "target"), ("draft", "draft"))}
    assert gpu.run_gpu_doctor(replace(QUICK, json=True, **pair)) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["models"]) == 2 and "do not fit" in found["notes"][-1]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--gpu", "--robot"), "different things"),
        (("--model", "x"), "for --gpu"),
        (("--gpu", "--variants", "3bit"), "variants must be one of float32, float16, bfloat16, 8bit, 4bit, got '3bit'"),
        (("--gpu", "--rows", "a"), "counts must be whole numbers from 1 on, like 1,4,8, got '"),
        (("--gpu", "--contexts", "0"), "counts must be whole numbers from 1 on, like 1,4,8, got '0'"),
        (("--gpu", "--device", "cuda"), "no CUDA device"),
        (("--gpu", "--device", "abacus"), "is unknown"),
    ],
)
def test_what_cannot_be_is_told(flags: tuple[str, ...], words: str) -> None:
    if "cuda" in flags and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    found = CliRunner().invoke(app, ["doctor", *flags])
    assert found.exit_code in (1, 2)
    assert all(word in found.output + str(found.exception) for word in words.split())
