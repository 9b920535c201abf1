"""The demo's real processes around a random pair: nothing it says is an action, so the robot stands and decides on."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from specnav.results.demo import DemoResults
from specnav.results.trace import load_traces
from specnav.supervise.processes import ChildSpec, Running, Supervisor
from tests.helpers.graph import quickly_started  # noqa: F401
from tests.helpers.waiting import until

pytestmark = [pytest.mark.graph, pytest.mark.timeout(400), pytest.mark.usefixtures("quickly_started")]
CHILDREN = ("cloud_verifier", "ros_node", "motion_node", "vlm_nav_node")


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
    process: Running
    out: Path
    said: Path
    errors: Path

    def children(self) -> dict[str, psutil.Process]:
        found = psutil.Process(self.process.pid).children(recursive=True)
        return {child.name(): child for child in found if child.name() in CHILDREN}

    def wait_for_words(self, words: str, within_s: float = 180.0) -> None:
        until(
            lambda: words in self.said.read_text() or self.process.poll() is not None,
            within_s,
            self.errors.read_text,
        )
        assert words in self.said.read_text(), f"the demo ended before {words!r}: {self.errors.read_text()}"


@pytest.fixture
def start(base: Path, tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started = []

    def begin(episodes: int, decisions: int, rtt_ms: float = 0.0) -> Demo:
        out, said, errors = (tmp_path / name for name in ("run", "said", "errors"))
        argv = [sys.executable, "-m", "tests.demo.small_demo", str(base), str(out)]
        argv += [str(episodes), str(decisions), str(rtt_ms)]
        with said.open("wb") as to_said, errors.open("wb") as to_errors:
            process = Supervisor.launch(ChildSpec("", argv), to_said, to_errors)
        started.append(Demo(process, out, said, errors))
        return started[-1]

    yield begin
    for demo in started:
        if demo.process.poll() is None:
            demo.process.send_signal(signal.SIGTERM)
            demo.process.wait(60)


def segments() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("fastdds_")}


def finish(demo: Demo, pids: set[int]) -> tuple[int, str, DemoResults]:
    code = demo.process.wait(180)
    assert not [pid for pid in pids if psutil.pid_exists(pid)], "a process was left behind"
    results = DemoResults.load(demo.out)
    assert (demo.out / "report.html").stat().st_size > 10_000
    return code, demo.errors.read_text(), results


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
    """SIGINT takes the same way: specnav.signals."""
    demo = start(episodes=1000, decisions=3)
    demo.wait_for_words("episode 2/1000")
    pids = {child.pid for child in demo.children().values()}
    demo.process.send_signal(signal.SIGTERM)
    code, _, results = finish(demo, pids)
    assert code == 130
    assert results.interrupted and len(results.episodes) >= 1
    assert "Interrupted. The figures below cover" in (demo.out / "report.html").read_text()
