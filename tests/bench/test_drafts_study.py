"""`specnav bench drafts`: which drafts are compared, timed, run in their folders, shown side by side."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from specdec.settings import parts
from specnav.bench.records.study import StudyResults
from specnav.bench.runner.drafts import candidates_of, run_drafts_study
from specnav.bench.settings import DraftsWords
from specnav.bench.studies import study_named
from specnav.cli.app import app
from specnav.errors import UsageError
from tests.bench.made_up_studies import MadeUpRuns, made_up_study
from tests.helpers import tiny_models as tiny

FOLDER = str(tiny.built_pairs() / "text-draft")


def labels(backends="", models=FOLDER, work=tiny.BUILT):
    return [one.label for one in candidates_of(DraftsWords(parts(backends), parts(models)), "", work)]


def test_a_folder_runs_on_torch_and_is_converted_for_llama_cpp(tmp_path):
    assert labels() == [
        "torch text-draft", "gguf text-draft f16", "gguf text-draft q8_0", "gguf text-draft q4_0",
    ]  # fmt: skip
    assert labels("gguf:q8_0,torch:8bit") == ["gguf text-draft q8_0", "torch text-draft 8bit"]
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    assert labels("torch,gguf", str(tmp_path / "x.gguf")) == ["gguf x"]


@pytest.mark.parametrize(
    ("backends", "models", "said"),
    [
        ("vllm", FOLDER, "'vllm' is unknown"),
        ("torch:q4_0", FOLDER, "torch takes none, 8bit, 4bit"),
        ("", "/nowhere/x", "/nowhere/x does not exist"),
        ("", "/nowhere/x.gguf", "does not exist"),
        ("torch", __file__, "does not exist: give Hugging Face folders or GGUF files"),
        ("torch", "", "does not exist"),
    ],
)
def test_what_cannot_be_compared_is_told(backends, models, said):
    with pytest.raises(UsageError, match=said):
        candidates_of(DraftsWords(parts(backends), parts(models)), "/nowhere/default", tiny.BUILT)


def test_two_drafts_of_one_name_are_refused(tmp_path):
    other = tmp_path / "text-draft"
    other.mkdir()
    with pytest.raises(UsageError, match="the same name"):
        labels("gguf:f16", f"{FOLDER},{other}")


@pytest.mark.slow
def test_every_draft_is_timed_and_asked_without_and_with_a_link(tmp_path, capsys):
    runs = MadeUpRuns()
    flags = {"out": tmp_path / "s", "limit": 1, "rtt_ms": 25.0, "methods": ("ar", "sd")}
    assert run_drafts_study(flags, DraftsWords(("torch", "torch:8bit"), (FOLDER,), 0.01), runs) == 0
    found = StudyResults.load(tmp_path / "s" / "drafts")
    assert [(one.label, one.kind) for one in found.drafts] == [
        ("torch text-draft", "float32"), ("torch text-draft 8bit", "8bit"),
    ]  # fmt: skip
    assert all([rows for rows, _ in one.row_ms] == [1, 2, 4, 8, 16] for one in found.drafts)
    assert all(ms > 0 for one in found.drafts for _, ms in one.row_ms)
    assert [(config.rtt_ms, config.draft_quantize) for config in runs.configs] == [
        (0, "none"), (25, "none"), (0, "8bit"), (25, "8bit"),
    ]  # fmt: skip
    assert "Time of a draft forward" in capsys.readouterr().out
    assert "Tokens a second" in (tmp_path / "s" / "report.html").read_text()


@pytest.mark.slow
def test_an_interrupted_study_is_kept_and_goes_on(tmp_path):
    flags = {"out": tmp_path / "s", "limit": 1, "methods": ("ar", "sd")}
    assert run_drafts_study(flags, DraftsWords(("torch",), (FOLDER,), 0.01), MadeUpRuns(stop_after=1)) == 130
    assert StudyResults.load(tmp_path / "s" / "drafts").interrupted
    rest = MadeUpRuns()
    assert run_drafts_study({**flags, "resume": True}, DraftsWords(("torch",), (FOLDER,), 0.01), rest) == 0
    assert [config.rtt_ms for config in rest.configs] == [40]
    assert not StudyResults.load(tmp_path / "s" / "drafts").interrupted


def test_the_table_tells_times_worth_and_speed():
    findings = study_named("drafts").read(made_up_study("drafts"))
    costs, speeds = findings.tables
    assert costs.rows[1][:4] == ("gguf draft", "gguf", "q8_0", "1.1") and "4.00×" in costs.rows[1]
    cells = tuple(f"{name},\nRTT {rtt}" for rtt in (0, 40) for name in ("ar", "sd", "fsd"))
    assert speeds.head == ("Draft", *cells, "as ar")
    assert [row[-1] for row in speeds.rows] == ["yes", "yes"]


@pytest.mark.gguf
@pytest.mark.slow
def test_a_folder_is_converted_into_the_run(tmp_path):
    flags = {"out": tmp_path / "s", "limit": 1, "methods": ("ar", "sd")}
    assert run_drafts_study(flags, DraftsWords(("gguf:q8_0",), (FOLDER,), 0.01), MadeUpRuns()) == 0
    assert (tmp_path / "s" / "drafts" / "gguf" / "text-draft-q8_0.gguf").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--draft-backends", "torch", "--study", "link"], "leave --study and --clients out"),
        (["drafts", "--models", "/nowhere"], "/nowhere does not exist"),
        (["study", "drafts"], "specnav bench drafts"),
    ],
)
def test_flags_that_do_not_go_together_are_told(arguments, said):
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code != 0 and said in (str(result.exception) + result.output)
