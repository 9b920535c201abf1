"""What is said of sampling on a command line is what decoding is given."""

from __future__ import annotations

from pathlib import Path

from specdec.options import GenerationOptions
from specdec.text.grammars import read_grammar
from specnav.bench.settings import BenchConfig, generation_options
from specnav.generate import GenerateConfig, _generation_options

SAID = {
    "max_new_tokens": 9,
    "temperature": 0.7,
    "seed": 4,
    "top_k": 5,
    "top_p": 0.8,
    "min_p": 0.1,
    "repetition_penalty": 1.2,
}


def test_all_that_generate_takes_is_given_on(tmp_path: Path) -> None:
    (tmp_path / "one.gbnf").write_text('root ::= "yes" | "no"')
    config = GenerateConfig(
        "x", **SAID, logit_bias=("3=1.5",), min_new_tokens=2, stop=("a", "b"), grammar=tmp_path / "one.gbnf"
    )  # type: ignore[arg-type]
    assert _generation_options(config) == GenerationOptions(
        **SAID, logit_bias=((3, 1.5),), min_new_tokens=2, stop=("a", "b"), grammar=read_grammar(config.grammar)
    )  # type: ignore[arg-type]


def test_all_that_a_benchmark_takes_is_given_on() -> None:
    assert generation_options(BenchConfig(**SAID)) == GenerationOptions(**SAID)  # type: ignore[arg-type]
