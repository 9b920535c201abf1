"""Bench runs whose verifier is on llama.cpp: what is asked, what is left out, and how rounding is distinguished from
errors.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec.methods import METHODS
from specdec.models import chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.bench.records.bench import BenchResults
from specnav.bench.runner.near_ties import NearTies, both_ways, noise_of
from specnav.bench.runner.processes import load_target, may_round
from specnav.bench.runner.run import methods_of, run_bench
from specnav.bench.settings import BenchConfig
from specnav.published.pairs import NO_EXITS, Pair
from specnav.results.errors import EvaluationError
from tests.helpers import drafts
from tests.helpers import tiny_models as tiny


def test_methods_that_need_layers_are_left_out_and_said() -> None:
    names, told = methods_of(BenchConfig(engine="llamacpp"))
    assert "split" not in names and "specedge" in names and "sd" in names
    assert told == "left out, for engine or axes do not go with them: split"
    assert "split" in methods_of(BenchConfig())[0]


@pytest.mark.slow
def test_a_target_that_cannot_be_split_meets_all_other_methods(tmp_path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    names, told = methods_of(BenchConfig(target_model=str(tmp_path)))
    assert set(METHODS) - set(names) == {"split"}
    assert told == "left out, for target or axes do not go with them: split"
    assert methods_of(BenchConfig(target_model=str(tmp_path), methods=("split",)))[0] == ("split",)


@pytest.mark.parametrize(
    ("engine", "methods", "words"),
    [
        ("llamacpp", ("ar", "hf-generate"), "hf-generate computes on torch"),
        ("vllm", (), "must be named, e.g. --methods ar,sd"),
    ],
)
def test_what_an_engine_cannot_be_compared_by_is_one_line(
    engine: str, methods: tuple[str, ...], words: str
) -> None:
    with pytest.raises(EvaluationError, match=words):
        methods_of(BenchConfig(engine=engine, methods=methods))


def test_a_pair_names_the_file_where_the_engine_takes_files() -> None:
    pair = Pair("a", "folder", "draft", "exits", Path("folder/a.gguf"))
    assert pair.served_by("own") == ("folder", "exits")
    assert pair.served_by("vllm") == ("folder", NO_EXITS)
    assert pair.served_by("llamacpp") == ("folder/a.gguf", NO_EXITS)
    assert Pair("b", "folder", "", "exits").served_by("llamacpp") == ("folder", NO_EXITS)


@pytest.mark.gguf
@pytest.mark.graph
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("quickly_started")
def test_a_run_on_llamacpp_compares_methods_with_that_target(tmp_path: Path) -> None:
    models = tiny.built_pairs()
    config = BenchConfig(
        engine="llamacpp",
        target_model=str(drafts.gguf_of(models / "text-target")),
        draft_model=str(models / "text-draft"),
        methods=("ar", "sd", "sd+tree:8x3", "ngram", "auto"),
        limit=2,
        max_new_tokens=16,
        out=tmp_path / "run",
    )
    assert run_bench(config) == 0
    results = BenchResults.load(tmp_path / "run")
    assert all(row.identical_to_ar and not row.errors for row in results.rows)
    assert results.config["engine"] == "llamacpp"
    assert "the target runs on llama.cpp" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.gguf
def test_cells_out_of_order_count_as_rounding_and_a_wrong_token_as_an_error() -> None:
    file = drafts.gguf_of(tiny.built_pairs() / "text-target")
    config = BenchConfig(engine="llamacpp", target_model=str(file), kv_type="f16")
    target = load_target(config)
    assert may_round(config, target)
    options = GenerationOptions(12)
    prompt = chat_prompt(target, "Find the ball.")
    right = generate_local(target, prompt, options)
    steps, noise = noise_of(target, prompt, right, options)
    assert noise > float((steps - both_ways(target, prompt, right, options)[1]).abs().max())
    order = steps[5].argsort(descending=True)
    judge = NearTies(target, [prompt], [right], options)
    assert judge.count([(0, (*right[:5], int(order[-1]), 7))]) == 0
    judge.noise = float(steps[5, order[0]] - steps[5, order[1]])
    assert judge.count([(0, (*right[:5], int(order[1]), 7))]) == 1
