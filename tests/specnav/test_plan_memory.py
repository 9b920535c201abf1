"""Memory planned from configurations is what loading takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specdec.errors import ModelError
from specdec.models import load_model
from specnav.cli.app import app
from specnav.errors import UsageError
from specnav.plan.memory import PUBLISHED, memory_of
from specnav.plan.run import PlanConfig, run_plan_memory
from tests.helpers import tiny_models as tiny

pytestmark = pytest.mark.slow

FOLDERS = ("text-target", "vision-target")
PARAMETERS = {  # as their pages say
    "Qwen/Qwen2-VL-2B-Instruct": 2_208_985_600,
    "Qwen/Qwen2-VL-7B-Instruct": 8_291_375_616,
    "Qwen/Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
}


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("quantize", ["none", "8bit"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_and_caches_are_what_loading_takes(name: str, quantize: str, dtype: str) -> None:
    folder = tiny.built_pairs() / name
    model = load_model(folder, dtype=dtype, quantize=quantize)
    held = sum(one.numel() * one.element_size() for one in model.network.parameters())
    scaled = [weight for module in model.network.modules() if hasattr(weight := getattr(module, "weight", None), "SCB")]
    held += sum(4 * weight.SCB.numel() for weight in scaled)
    planned = memory_of(str(folder), dtype, quantize, "cpu")
    assert planned.parameters == model.parameter_count
    assert planned.weights == pytest.approx(held, rel=0.03)
    assert planned.kv_a_token == model.runner.kv_bytes_a_token
    assert (planned.picture > 0) == (name == "vision-target")


@pytest.mark.parametrize("name", PARAMETERS)
def test_published_models_have_the_published_numbers_of_parameters(name: str) -> None:
    assert memory_of(name, "bfloat16", "none", "cuda").parameters == PARAMETERS[name]


def test_four_bits_take_about_a_quarter_of_sixteen() -> None:
    whole, small = (memory_of("Qwen/Qwen3-8B", "bfloat16", how, "cuda") for how in ("none", "4bit"))
    assert 0.3 < small.weights / whole.weights < 0.45  # embeddings and head stay whole
    assert set(PARAMETERS) <= set(PUBLISHED)


def test_the_command_says_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    seven = "Qwen/Qwen2-VL-7B-Instruct"
    asked = ["plan", "memory", "--target", seven, "--clients", "8", "--gb", "24"]
    asked += ["--draft", "Qwen/Qwen2-VL-2B-Instruct"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0 and "fits into 24 GiB" in result.output and "2.21 B" in result.output
    assert CliRunner().invoke(app, [*asked[:-4], "--gb", "16"]).exit_code == 1
    result = CliRunner().invoke(app, [*asked, "--json"])
    said = json.loads(result.output[: result.output.rindex("}") + 1])
    assert said["cloud"]["bytes"]["caches"] == 8 * 4096 * 57344 and said["edge"]["kv_a_token"] == 28672


def test_a_recurrent_model_has_no_cache_that_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import MambaConfig

    MambaConfig(vocab_size=100, hidden_size=64, num_hidden_layers=2).save_pretrained(tmp_path)
    assert memory_of(str(tmp_path), "bfloat16", "none", "cpu").kv_a_token == 0
    assert run_plan_memory(PlanConfig(str(tmp_path), None, clients=8, gb=2)) == 0
    assert "8 sessions: fits into 2 GiB" in capsys.readouterr().out
    assert run_plan_memory(PlanConfig(str(tmp_path), None, gb=0.01)) == 1


def test_what_cannot_be_planned_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        run_plan_memory(PlanConfig(str(tmp_path / "nothing"), None))
    with pytest.raises(ModelError, match="the model's name is empty"):
        run_plan_memory(PlanConfig("", None))
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": -1}')
    with pytest.raises(ModelError, match=r"describes no model \(.*negative dimension"):
        run_plan_memory(PlanConfig(str(tmp_path), None))
    with pytest.raises(UsageError, match="dtype must be one of float32, float16, bfloat16, got 'int3'"):
        PlanConfig("Qwen/Qwen3-8B", None, dtype="int3")
    with pytest.raises(UsageError, match="draft_quantize must be one of none, 8bit, 4bit, got '2bit'"):
        PlanConfig("Qwen/Qwen3-8B", None, draft_quantize="2bit")
    with pytest.raises(UsageError, match="clients must be a whole number from 1 to 100000, got 0"):
        PlanConfig("Qwen/Qwen3-8B", None, clients=0)
