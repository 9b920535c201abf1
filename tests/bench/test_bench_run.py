"""Whole bench runs: verifier, link and edge as real processes; killed, interrupted and resumed."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from specdec.methods import METHODS
from specnav.bench.records.bench import BenchResults
from specnav.bench.runner.run import LOGS, new_folder, run_bench
from specnav.bench.settings import BenchConfig
from specnav.errors import UsageError
from specnav.supervise.processes import ChildSpec, Running, Supervisor

TOKENS = 32
SLOW_MS = 50.0
"""A target so slow that a run is still busy when a starved test process gets to stop it."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Without it the run is not forked (tests.graph.forking), and its verifier does not have its own name."""
pytestmark = [pytest.mark.graph, pytest.mark.timeout(900), pytest.mark.usefixtures("quickly_started")]


@pytest.fixture
def config(model_root, tmp_path):
    return BenchConfig(
        target_model=str(model_root / "text-target"),
        draft_model=str(model_root / "text-draft"),
        out=tmp_path / "run",
        max_new_tokens=TOKENS,
        limit=3,
    )


def started(config: BenchConfig, *more: str) -> tuple[Running, Path]:
    """The command as a process, and where its stderr is kept."""
    argv = [sys.executable, "-m", "specnav.cli", "bench", "run", "--max-new-tokens", str(TOKENS)]
    argv += ["--out", str(config.out), "--target-model", config.target_model, "--draft-model", config.draft_model]
    errors = config.out.with_name("errors")
    with config.out.with_name("said").open("wb") as to_said, errors.open("wb") as to_errors:
        return Supervisor.launch(ChildSpec("", [*argv, *more], ONE_THREAD), to_said, to_errors), errors


def its_processes(bench: Running) -> dict[str, psutil.Process]:
    """What a run has started, by name."""
    found = psutil.Process(bench.pid).children(recursive=True)
    return {child.name(): child for child in found if child.name() != "forking_parent"}


def wait_for(path: Path, what: bytes = b"\n", timeout_s: float = 200) -> None:
    deadline = time.monotonic() + timeout_s
    while not path.exists() or what not in path.read_bytes():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.05)


def test_all_methods_and_oracles_over_an_emulated_link(config, capsys):
    methods = (*METHODS, "sd+tree:8x3", "hf-generate", "hf-assisted")
    assert run_bench(replace(config, limit=1, max_new_tokens=16, methods=methods, rtt_ms=20.0, verify_ms=4.0)) == 0
    results = BenchResults.load(config.out)
    assert [row.method for row in results.rows] == list(methods)
    assert all(row.identical_to_ar and row.questions == 1 for row in results.rows)
    by_method = {row.method: row for row in results.rows}
    assert by_method["ar"].ttft_ms >= 20 and by_method["ar"].uplink_bytes_per_round is not None
    assert by_method["hf-generate"].uplink_bytes_per_round is None  # no link: how fast it is depends on the machine
    assert 1.0 <= by_method["sd"].overhead_over_floor < 3
    assert results.config["rtt_ms"] == 20.0 and results.asked == 1 and not results.error
    lines = [json.loads(line) for line in (config.out / "rounds.jsonl").read_text().splitlines()]
    sd = [line for line in lines if line["method"] == "sd"]
    assert len(sd) == by_method["sd"].rounds and all(line["wait_ms"] >= 20 for line in sd)
    assert "RTT 20 ms" in (config.out / "report.html").read_text()
    assert "hf-assisted" in capsys.readouterr().out


def test_a_dead_verifier_ends_the_run_with_what_was_answered_and_it_can_be_resumed(config):
    slow = ["--verify-ms", str(SLOW_MS), "--methods", "ar,sd"]
    process, errors = started(config, *slow)
    wait_for(config.out / "answers.jsonl")
    its_processes(process)["cloud_verifier"].send_signal(signal.SIGKILL)
    assert process.wait(200) == 1
    words = errors.read_text()
    last = words.strip().splitlines()[-1]
    assert "cloud_verifier ended (signal SIGKILL)" in last and "Traceback" not in words
    broken = BenchResults.load(config.out)
    assert "SIGKILL" in broken.error and broken.rows[0].answers < 14
    assert "SIGKILL" in (config.out / "report.html").read_text()
    with pytest.raises(UsageError, match=r"verify_ms was 50.0 and is 0.0"):
        run_bench(replace(config, methods=("ar", "sd"), resume=True))
    assert run_bench(replace(config, methods=("ar", "sd"), verify_ms=SLOW_MS, resume=True)) == 0
    whole = BenchResults.load(config.out)
    assert whole.error == "" and all(row.questions == 3 and row.identical_to_ar for row in whole.rows)
    assert whole.started_at == broken.started_at and whole.wall_s > broken.wall_s
    with pytest.raises(UsageError, match="answers of methods sd and 2 more questions, which would be lost"):
        run_bench(replace(config, methods=("ar",), limit=1, verify_ms=SLOW_MS, resume=True))


def test_an_ended_run_keeps_its_questions_draws_the_report_and_leaves_no_process(config):
    """By SIGTERM; Ctrl-C raises the same exception (specnav.signals)."""
    process, errors = started(config, "--verify-ms", str(SLOW_MS), "--methods", "ar,sd")
    wait_for(config.out / "answers.jsonl", b'"method":"sd"')
    children = its_processes(process)
    assert "cloud_verifier" in children
    process.send_signal(signal.SIGTERM)
    assert process.wait(200) == 130 and "Traceback" not in errors.read_text()
    results = BenchResults.load(config.out)
    assert results.interrupted and results.rows[0].questions >= 1
    assert "Interrupted" in (config.out / "report.html").read_text()
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children.values())


def test_models_that_do_not_fit_together_or_have_no_weights_are_refused_in_one_line(
    config, tmp_path, model_root
):
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (empty / name).write_bytes((model_root / "text-target" / name).read_bytes())
    with pytest.raises(UsageError, match="no usable weights"):
        run_bench(replace(config, draft_model=str(empty)))
    with pytest.raises(UsageError, match="no usable weights"):
        run_bench(replace(config, target_model=str(empty), out=tmp_path / "second"))


def test_a_folder_in_use_is_left_alone(config):
    config.out.mkdir()
    (config.out / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="is not empty"):
        run_bench(config)
    with pytest.raises(UsageError, match="holds no bench run"):
        run_bench(replace(config, resume=True))


def test_a_resumed_run_never_reads_the_earlier_runs_logs(tmp_path):
    assert new_folder(tmp_path / LOGS).name == "logs"
    for name in ("logs", "logs-2"):
        (tmp_path / name).mkdir()
    assert new_folder(tmp_path / LOGS).name == "logs-3"
