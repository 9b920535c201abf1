"""What `make test` does with tests that missed a bound in real time beside other work, and with what tests leave."""

import importlib.util
import json
import sys

import pytest

from specnav.paths import ROOT


@pytest.fixture
def runner(monkeypatch):
    spec = importlib.util.spec_from_file_location("run_tests", ROOT / "scripts" / "run_tests.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_tests", module)  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("failed", [0, 1, "few", "more"])
def test_only_a_few_failures_are_asked_again_and_their_second_answer_counts(runner, monkeypatch, tmp_path, failed):
    failed = {"few": runner.FEW, "more": runner.FEW + 1}.get(failed, failed)

    class Ended:
        def wait(self):
            return 7

    asked = []
    monkeypatch.setattr(runner, "start_tests", lambda *given: asked.append(given) or Ended())
    file = tmp_path / "v" / "cache" / "lastfailed"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({f"test_{number}": True for number in range(failed)}))
    code = runner.ask_again_alone("graph", tmp_path, ["-k", "some"])
    if 0 < failed <= runner.FEW:
        assert code == 7 and asked == [("graph", 0, ["-k", "some", "--lf", "--lfnf=none"])]
    else:
        assert code == 1 and not asked


@pytest.mark.slow
def test_a_process_that_a_test_leaves_is_named_and_ended(runner, monkeypatch, capfd):
    monkeypatch.setattr(runner, "TO_END_S", 0.01)
    leaves = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    assert not runner.left_behind()
    runner.start("one that leaves a process", ["timeit", "-n1", "-r1", leaves]).wait()
    (left,) = runner.left_behind()
    assert f"left behind by a test: {left.pid} {sys.executable} -c" in capfd.readouterr().out
    left.wait(10)
    assert not runner.left_behind()
