"""The demo's real processes around a random pair: nothing it says is an action, so the robot stands and decides on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from specnav.results.demo import DemoResults, load_results
from specnav.results.trace import load_traces

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.graph, pytest.mark.timeout(400)]
CHILDREN = ("cloud_verifier", "navsim.ros_node", "motion_node", "vlm_nav_node")
CODE = """
import sys
from pathlib import Path
from specnav.demo.run import DemoConfig, run_demo
from specnav.errors import user_errors
base, out = Path(sys.argv[1]), Path(sys.argv[2])
with user_errors():
    sys.exit(run_demo(DemoConfig(
        episodes=int(sys.argv[3]), max_decisions=int(sys.argv[4]), out=out, headless=True, max_new_tokens=24,
        rtt_ms=float(sys.argv[5]), target_model=str(base / "target"), draft_model=str(base / "draft"),
        robot_config=base / "robot.yaml",
    )))
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.helpers.tiny_models import built_pairs, noisy_copy

    folder = tmp_path_factory.mktemp("pair")
    (folder / "target").symlink_to(built_pairs() / "vision-target")
    noisy_copy(folder / "target", folder / "draft", 0.05)
    (folder / "robot.yaml").write_text("vlm_nav_node:\n  ros__parameters: {parse_failure_limit: 100}\n")
    return folder


@dataclass
class Demo:
    process: subprocess.Popen[str]
    out: Path

    def children(self) -> dict[str, psutil.Process]:
        found = {}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            words = " ".join(child.cmdline())
            found |= {name: child for name in CHILDREN if name in words}
        return found

    def wait_for_words(self, words: str, within_s: float = 180.0) -> None:
        assert self.process.stdout is not None
        deadline = time.monotonic() + within_s
        for line in self.process.stdout:
            if words in line:
                return
            assert time.monotonic() < deadline, f"{words!r} did not come"
        raise AssertionError(f"the demo ended before {words!r}: {self.process.communicate()[1]}")


@pytest.fixture
def start(base: Path, tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started = []

    def begin(episodes: int, decisions: int, rtt_ms: float = 0.0) -> Demo:
        out = tmp_path / "run"
        argv = [sys.executable, "-c", CODE, str(base), str(out), str(episodes), str(decisions), str(rtt_ms)]
        pipe = subprocess.PIPE
        started.append(Demo(subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, cwd=ROOT), out))
        return started[-1]

    yield begin
    for demo in started:
        if demo.process.poll() is None:
            demo.process.terminate()
            demo.process.wait(60)


def segments() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("fastdds_")}


def finish(demo: Demo, pids: set[int]) -> tuple[int, str, DemoResults]:
    _, errors = demo.process.communicate(timeout=180)
    assert not [pid for pid in pids if psutil.pid_exists(pid)], "a process was left behind"
    results = load_results(demo.out)
    assert (demo.out / "report.html").stat().st_size > 10_000
    return demo.process.returncode, errors, results


def test_whole_run_records_compares_and_leaves_nothing_behind(start: Callable[..., Demo]) -> None:
    before = segments()
    demo = start(episodes=1, decisions=4, rtt_ms=20.0)
    demo.wait_for_words("episode 1/1")
    pids = {child.pid for child in demo.children().values()}
    assert set(demo.children()) == set(CHILDREN)
    mine: set[str] = set()
    for pid in (*pids, demo.process.pid):
        maps = Path(f"/proc/{pid}/maps").read_text()
        mine |= {
            word.removeprefix("/dev/shm/") for word in maps.split() if word.startswith("/dev/shm/fastdds_")
        }
    assert mine - before
    code, errors, results = finish(demo, pids)
    assert (code, errors.strip()) == (0, "")
    assert not mine & segments(), "shared memory was left behind"
    (episode,) = results.episodes
    assert (episode.outcome, episode.success, episode.path_m) == ("decision_limit", False, 0.0)
    assert episode.steps >= 4 and episode.parse_failures == episode.steps
    assert results.summary.identical_to_target is True
    assert results.summary.compared_decisions == episode.steps
    assert results.config["rtt_ms"] == 20.0
    (trace,) = load_traces(demo.out)
    decision = trace.decisions[0]
    assert sum(decision.drafted) > 0 and {span.lane for span in decision.timeline} >= {
        "edge",
        "uplink",
        "cloud",
        "downlink",
    }
    assert decision.total_ms > 20.0
    assert (demo.out / "demo.gif").exists()


def test_dead_verifier_ends_the_run_with_one_line_and_a_report(start: Callable[..., Demo]) -> None:
    demo = start(episodes=2, decisions=500)
    demo.wait_for_words("episode 1/2")
    children = demo.children()
    time.sleep(1.0)
    children["cloud_verifier"].send_signal(signal.SIGKILL)
    code, errors, results = finish(demo, {child.pid for child in children.values()})
    assert code == 1
    log = demo.out / "logs" / "cloud_verifier.log"
    (line,) = [said for said in errors.splitlines() if said.strip()]
    assert line.startswith("specnav: error: cloud_verifier ended (signal SIGKILL)")
    assert line.endswith(f"its log is {log}") and log.exists()
    assert "cloud_verifier ended" in results.error
    assert "cloud_verifier ended" in (demo.out / "report.html").read_text()


def test_sigterm_ends_the_run_keeps_what_was_finished_and_draws_the_report(start: Callable[..., Demo]) -> None:
    """SIGINT takes the same way: specnav.signals, and test_bench_run."""
    demo = start(episodes=1000, decisions=3)
    demo.wait_for_words("episode 2/1000")
    pids = {child.pid for child in demo.children().values()}
    demo.process.send_signal(signal.SIGTERM)
    code, _, results = finish(demo, pids)
    assert code == 130
    assert results.interrupted and len(results.episodes) >= 1
    assert "Interrupted. The figures below cover" in (demo.out / "report.html").read_text()
