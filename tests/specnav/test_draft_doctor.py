"""`specnav doctor --draft`, and how the doctor finds llama.cpp."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from specdec.models import load_model
from specnav.cli.app import app
from specnav.doctor import machine
from specnav.doctor.draft import measure
from specnav.errors import UsageError
from tests.helpers import tiny_models as tiny

pytestmark = pytest.mark.slow


class Clock:
    """Ends a millisecond after every time that it is looked at."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def test_forwards_are_timed_by_their_rows_and_leave_nothing_behind() -> None:
    for name in ("text-draft", "vision-draft"):
        model = load_model(tiny.built_pairs() / name)
        found = measure(model, name, 0.5, (8, 1, 2), 0.01, Clock())
        assert [(one.rows, one.ms, one.ms_a_row) for one in found.forwards] == [
            (1, 1, 1),
            (2, 1, 0.5),
            (8, 1, 0.125),
        ]
        assert (found.context, found.parameters) == (128, model.parameter_count)


def test_a_draft_whose_context_is_too_short_for_the_rows_is_told() -> None:
    model = load_model(tiny.built_pairs() / "text-draft")
    assert measure(model, "draft", 0.0, (500,), 0.0, Clock()).context == 10
    with pytest.raises(UsageError, match="has a context of 512 tokens: give fewer --rows"):
        measure(model, "draft", 0.0, (1, 512), 0.0, Clock())


def test_the_command_prints_a_table_or_json_for_scripts() -> None:
    draft = str(tiny.built_pairs() / "text-draft")
    shown = CliRunner().invoke(app, ["doctor", "--draft", draft, "--seconds", "1", "--rows", "1,2"])
    assert shown.exit_code == 0 and "ms per forward" in shown.output
    told = CliRunner().invoke(app, ["doctor", "--draft", draft, "--seconds", "1", "--rows", "1,2", "--json"])
    assert [one["rows"] for one in json.loads(told.stdout)["forwards"]] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--draft", "/nowhere/draft"], "/nowhere/draft does not exist"),
        (["--draft", "x", "--robot"], "check different things"),
        (["--draft", "x", "--rows", "0"], "counts must be whole numbers from 1 on, like 1,4,8, got '0'"),
        (["--draft", "x", "--contexts", "64"], "--contexts is for --gpu: leave it out"),
        (["--draft", "x", "--image", "x"], "--verifier and --key are for --robot"),
        (["--gpu", "--verifier", "x"], "--verifier and --key are for --robot"),
        (["--robot", "--gamma", "4"], "--gamma is for --gpu: leave it out"),
        (["--robot", "--rows", "4"], "--rows is for --gpu and --draft: leave it out"),
        (["--seconds", "4"], "--seconds is for --gpu, --draft and --robot: leave it out"),
        (["--device", "cuda"], "--device is for --gpu and --draft: leave it out"),
        (["--model", "x"], "--pair, --model and --variants are for --gpu"),
        (["--pair", "nav"], "--pair, --model and --variants are for --gpu"),
    ],
)
def test_wrong_arguments_are_told(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["doctor", *arguments])
    assert done.exit_code and said in str(done.exception)


def test_what_llama_cpp_says_of_itself_becomes_a_short_line() -> None:
    of_a_pc = "CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | FMA = 1 | AVX512 = 0 | LLAMAFILE = 1 | REPACK = 1 | "
    assert machine.llama_cpp_features(of_a_pc) == "AVX2 FMA"
    of_an_orin = "CUDA : ARCHS = 870 | USE_GRAPHS = 1 | CPU : NEON = 1 | DOTPROD = 1 | OPENMP = 1 | "
    assert machine.llama_cpp_features(of_an_orin) == "ARCHS=870 USE_GRAPHS NEON DOTPROD"
    assert machine.llama_cpp_features("") == "no features"


@pytest.mark.gguf
def test_llama_cpp_is_found_or_how_to_get_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine.check_llama_cpp()
    assert found.status == "ok" and "a GPU" in found.detail
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: None)
    assert machine.check_llama_cpp().remedy == "make setup-gguf"


@pytest.mark.parametrize(
    ("code", "said"), [(-4, "signal 4: built for another processor?"), (1, "libggml.so: not found")]
)
def test_a_llama_cpp_that_does_not_load_is_no_reason_to_fail(
    code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: object())
    done = subprocess.CompletedProcess(
        [sys.executable], code, "", "Traceback\nOSError: libggml.so: not found"
    )
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: done)
    found = machine.check_llama_cpp()
    assert found.status == "optional" and said in found.detail
