"""What `make test` does with tests that missed a bound in real time, and with what runs beside them."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from specnav.paths import ROOT


@pytest.fixture
def runner(monkeypatch):
    spec = importlib.util.spec_from_file_location("run_tests", ROOT / "scripts" / "run_tests.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_tests", module)  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("failed", [0, 1, 10, 11])
def test_only_a_few_failures_are_asked_again_and_their_second_answer_counts(runner, monkeypatch, tmp_path, failed):
    class Ended:
        def wait(self):
            return 7

    asked = []
    monkeypatch.setattr(runner, "start_tests", lambda *given: asked.append(given) or Ended())
    file = tmp_path / "v" / "cache" / "lastfailed"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({f"test_{number}": True for number in range(failed)}))
    code = runner.ask_again_alone("graph", tmp_path, ["-k", "some"])
    if 0 < failed <= 10:
        assert code == 7 and asked == [("graph", 0, ["-k", "some", "--lf", "--lfnf=none"])]
    else:
        assert code == 1 and not asked


CHILD = "import time; print('up', flush=True); time.sleep(60)"
PARENT = f"import subprocess, sys; input(); subprocess.run([sys.executable, '-c', {CHILD!r}], start_new_session=True)"


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux has this priority")
def test_what_gives_way_does_so_with_all_it_starts_until_it_competes_again(runner):
    with psutil.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True,
    ) as parent:  # fmt: skip
        runner.give_way(parent.pid)
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "up\n"
        family = [parent.pid, *(child.pid for child in parent.children())]
        assert [os.sched_getscheduler(pid) for pid in family] == [os.SCHED_IDLE] * 2
        runner.give_way(parent.pid)  # the child's session
        groups = [Path(f"/proc/{pid}/autogroup") for pid in family]
        if groups[0].exists() and os.geteuid() == 0:
            assert [group.read_text().split()[-1] for group in groups] == ["19"] * 2
        runner.compete(parent.pid)
        if os.geteuid() == 0:  # others may not be allowed to take it back, which hurts only beside other work
            assert [os.sched_getscheduler(pid) for pid in family] == [os.SCHED_OTHER] * 2
        for pid in family:
            os.kill(pid, signal.SIGKILL)
    runner.compete(parent.pid)  # what has ended is nothing to worry about


def test_kept_output_is_shown_whole_and_from_then_on_as_it_comes(runner, monkeypatch, tmp_path, capfdbinary):
    talking = "for line in range(3):\n    print('line', line, flush=True)\n    time.sleep(0.3)\n"
    (tmp_path / "talking.py").write_text(f"import time\n{talking}raise SystemExit(5)\n")
    monkeypatch.chdir(tmp_path)
    job = runner.start("talking", ["talking"], quiet=True)
    assert job.wait() == 5
    said = capfdbinary.readouterr().out
    assert [line for line in said.splitlines() if line.startswith(b"line")] == [b"line 0", b"line 1", b"line 2"]
    assert b"exit code 5" in said
