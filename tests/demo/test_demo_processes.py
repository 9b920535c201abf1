from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from specnav.errors import ChildFailed
from specnav.supervise.processes import ChildSpec, Supervisor, last_words

READY = re.compile("ready")
STUBBORN = (
    "import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\n"
    "print('ready', flush=True)\ntime.sleep(60)"
)
POLITE = "import time\nprint('ready', flush=True)\ntry:\n  time.sleep(60)\nexcept KeyboardInterrupt:\n  print('bye')"
PARENT = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "print('ready', child.pid, flush=True)\ntime.sleep(60)"
)


def python(name: str, code: str, ready: re.Pattern[str] | None = READY) -> ChildSpec:
    return ChildSpec(name, [sys.executable, "-S", "-c", code], ready=ready)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path / "logs") as running:
        yield running


def gone(pid: int, within_s: float = 3.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_ready_line_is_handed_back_and_output_goes_to_the_log(supervisor: Supervisor) -> None:
    child = supervisor.start(
        python("a", "print('starting'); print('now ready: 5', flush=True); import time; time.sleep(60)")
    )
    assert supervisor.wait_ready(child, 10) == "now ready: 5"
    assert child.log.read_text().splitlines() == ["starting", "now ready: 5"]


def test_interrupt_lets_a_child_end_by_itself(supervisor: Supervisor) -> None:
    child = supervisor.start(python("a", POLITE))
    supervisor.wait_ready(child, 10)
    assert supervisor.stop("a") == 0
    assert last_words(child.log) == "bye"
    supervisor.check()


@pytest.mark.slow
def test_child_that_ignores_signals_is_killed(supervisor: Supervisor) -> None:
    child = supervisor.start(python("a", STUBBORN))
    supervisor.wait_ready(child, 10)
    assert supervisor.stop("a", grace_s=0.2) == -signal.SIGKILL


@pytest.mark.slow
def test_leaving_the_block_stops_everything_even_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="planned"), Supervisor(tmp_path) as running:
        children = [running.start(python(name, POLITE)) for name in "abc"]
        for child in children:
            running.wait_ready(child, 10)
        raise RuntimeError("planned")
    assert all(child.process.poll() == 0 for child in children)
    assert running.pids == ()


def test_grandchildren_are_stopped_with_their_parent(supervisor: Supervisor) -> None:
    child = supervisor.start(python("a", PARENT))
    grandchild = int(supervisor.wait_ready(child, 10).split()[1])
    supervisor.stop_all()
    assert gone(grandchild)


def test_child_that_dies_is_reported_in_one_line_with_its_log(supervisor: Supervisor) -> None:
    child = supervisor.start(
        python("navsim", "import sys; print('no display', file=sys.stderr); sys.exit(3)", None)
    )
    child.process.wait(10)
    with pytest.raises(ChildFailed) as caught:
        supervisor.check()
    words = str(caught.value)
    assert words == f"navsim ended (exit code 3), last line: 'no display'; its log is {child.log}"


def test_child_that_is_killed_is_reported_by_signal(supervisor: Supervisor) -> None:
    child = supervisor.start(python("a", POLITE))
    supervisor.wait_ready(child, 10)
    os.kill(child.process.pid, signal.SIGKILL)
    child.process.wait(10)
    with pytest.raises(ChildFailed, match=r"a ended \(signal SIGKILL\)"):
        supervisor.check()


def test_waiting_ends_at_once_when_the_child_ends_first(supervisor: Supervisor) -> None:
    child = supervisor.start(python("a", "raise SystemExit(1)"))
    began = time.monotonic()
    with pytest.raises(ChildFailed, match="exit code 1"):
        supervisor.wait_ready(child, 30)
    assert time.monotonic() - began < 10


@pytest.mark.slow
def test_child_that_never_gets_ready_is_reported(supervisor: Supervisor) -> None:
    child = supervisor.start(python("a", "import time; time.sleep(60)"))
    with pytest.raises(ChildFailed, match="a was not ready after 0 s"):
        supervisor.wait_ready(child, 0.2)


def test_program_that_does_not_exist_is_reported(supervisor: Supervisor) -> None:
    with pytest.raises(ChildFailed, match="cannot start a"):
        supervisor.start(ChildSpec("a", ["/no/such/program"]))


def test_two_children_of_one_name_are_refused(supervisor: Supervisor) -> None:
    supervisor.start(python("a", POLITE))
    with pytest.raises(ChildFailed, match="already running"):
        supervisor.start(python("a", POLITE))


def test_a_child_whose_parent_died_before_it_could_ask_for_that_ends_by_itself() -> None:
    code = (
        "import os, time\nfrom specnav.supervise.processes import die_with_parent\n"
        "parent = os.getpid()\n"
        "if os.fork(): os._exit(0)\n"
        "while os.getppid() == parent: time.sleep(0.001)\n"
        "die_with_parent(parent)\nprint('alive', flush=True)"
    )
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=root, timeout=60)
    assert (run.returncode, run.stdout) == (0, b"")


def test_children_die_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom specnav.supervise.processes import ChildSpec, Supervisor\n"
        f"s = Supervisor(Path({str(tmp_path)!r}))\n"
        "c = s.start(ChildSpec('a', [sys.executable, '-S', '-c', 'import time; time.sleep(60)']))\n"
        "print(c.process.pid, flush=True)\ntime.sleep(60)"
    )
    root = Path(__file__).resolve().parents[2]
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert psutil.pid_exists(pid)
    parent.kill()
    parent.wait(10)
    parent.stdout.close()
    assert gone(pid)
