"""`specnav bench`: five commands from one class of settings, and the spelling of the previous release."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

from specdec.settings import settings_of
from specnav.bench.records.study import StudyResults
from specnav.bench.runner import clients_study, drafts, points, study
from specnav.bench.settings import BenchConfig, make_config
from specnav.cli.app import app
from specnav.cli.bench import bench_app, modern
from specnav.errors import UsageError
from specnav.paths import ROOT


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", "run"),
        ("--methods ar,sd --rtt 40", "run --methods ar,sd --rtt 40"),
        ("mt_bench.jsonl --rtt=40", "run mt_bench.jsonl --rtt 40"),
        ("--point go2-wifi6 --limit 3", "run --point go2-wifi6 --limit 3"),
        ("--limit 3 --point all --write", "points all --limit 3 --write"),
        ("--point a,b", "points a,b"),
        ("--study gamma,link --limit 4", "study gamma,link --limit 4"),
        ("--study clients --clients 1,2 --point p", "study clients --clients 1,2 --point p"),
        ("--redraw runs/x", "study --redraw runs/x"),
        ("--clients 1,8 --methods sd --groups 2", "clients 1,8 --methods sd --groups 2"),
        ("--draft-backends torch --draft-models a,b --rtt 40", "drafts --backends torch --models a,b --rtt 40"),
    ],
)
def test_the_old_spelling_is_put_in_its_new_place(old, new):
    assert modern(old.split()) == new.split()


@pytest.mark.slow
def test_the_old_spelling_works_and_says_so_in_one_line():
    done = CliRunner().invoke(app, ["bench", "--clients", "0"])
    (line,) = done.stderr.splitlines()
    assert line == "specnav bench OPTIONS is now specnav bench clients: the old spelling will be removed soon"
    assert isinstance(done.exception, UsageError) and "numbers of clients" in str(done.exception)
    assert CliRunner().invoke(app, ["bench", "--help"]).stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("words", ["run", "points go2-wifi6,jetson-vicuna7b", "study gamma", "clients 1"])
def test_a_method_that_is_given_twice_is_refused_before_torch_is_imported(words):
    flags = ["specnav", "bench", *words.split(), "--methods", "sd,sd"]
    code = f"import sys; sys.argv = {flags}\nfrom specnav.cli.app import main\n"
    code += "try:\n    main()\nfinally:\n    print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "method sd is given twice; give each once" in done.stderr and done.stdout == "False\n"


def test_every_setting_of_a_run_is_an_option_once():
    commands = typer.main.get_command(bench_app).commands
    assert set(commands) == {"run", "points", "study", "clients", "drafts"}
    spelled = [word for parameter in commands["run"].params for word in parameter.opts]
    assert len(spelled) == len(set(spelled))
    assert {one.spellings[0] for one in settings_of(BenchConfig).values()} <= set(spelled)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"rtt_ms": -1}, "rtt_ms must be a number from 0 to 60000 ms, got -1"),
        ({"gamma": 33}, "gamma must be a whole number from 1 to 32, got 33"),
        ({"quantize": "3bit"}, "quantize must be one of none, 8bit, 4bit, got '3bit'"),
        ({"limit": 0}, "limit must be a whole number from 1 to 1000000, got 0"),
    ],
)
def test_a_value_out_of_range_is_told_once_in_one_wording(flags, said):
    with pytest.raises(UsageError, match="must be") as error:
        make_config(flags)
    assert str(error.value) == said


@pytest.mark.slow
@pytest.mark.parametrize("spelling", [["bench", "study", "cost", "--with", "tau=3.2"], ["cost", "--tau", "3.2"]])
def test_what_were_commands_are_studies_under_both_names(spelling, monkeypatch, tmp_path):
    monkeypatch.setattr("specnav.run_folder.RUNS", tmp_path)
    done = CliRunner().invoke(app, spelling)
    assert done.exit_code == 0 and "Edge saves" in done.stdout and "τ = 3.2" in done.stdout
    assert ("old spelling" in done.stderr) == (spelling[0] == "cost")
    (folder,) = tmp_path.iterdir()
    assert StudyResults.load(folder / "cost").config["tau"] == 3.2
    assert "<svg" in (folder / "report.html").read_text()


@pytest.mark.slow
def test_payloads_are_weighed_in_a_study(tmp_path):
    words = ["--with", "vocab=500", "--with", "rounds=20", "--with", "top_k=50", "--out", str(tmp_path / "s")]
    done = CliRunner().invoke(app, ["bench", "study", "payloads", *words])
    assert done.exit_code == 0 and "picospec" in done.stdout
    rows = StudyResults.load(tmp_path / "s" / "payloads").payloads
    assert {one.sampling for one in rows} == {"top-k 50"} and all(one.rounds == 20 for one in rows)


@pytest.mark.parametrize(
    ("command", "flag", "values"),
    [
        ("run", "--limit", [points._SHORT["limit"]]),
        ("run", "--max-new-tokens", [BenchConfig.max_new_tokens, points._SHORT["max_new_tokens"]]),
        ("points", "--limit", [points._SHORT["limit"]]),
        ("study", "--time-scale", [study.TIME_SCALE, clients_study.TIME_SCALE]),
        ("drafts", "--methods", [",".join(drafts.METHODS)]),
        ("drafts", "--limit", [drafts._SHORT["limit"]]),
        ("drafts", "--max-new-tokens", [drafts._SHORT["max_new_tokens"]]),
        ("drafts", "--rtt", [drafts.RTTS[-1]]),
    ],
)
def test_help_shows_the_defaults_that_a_command_has_of_its_own(command, flag, values):
    """tests/golden compares the file with the commands."""
    told = json.loads((ROOT / "tests" / "golden" / "commands.json").read_text())[f"specnav bench {command}"]
    (shown,) = (one["help"] for one in told["parameters"] if flag in one["spelled"])
    words = [word.strip(",;)") for word in shown.rpartition("(default ")[2].split()]
    assert all((f"{value:g}" if isinstance(value, (int, float)) else value) in words for value in values), shown
