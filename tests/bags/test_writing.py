"""Recordings are there whole or not at all, and one that was killed can still be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specnav.bags.contents import STRING
from specnav.bags.source import open_bag
from specnav.bags.writing import McapFile
from specnav.record.types import INTERFACES, is_wanted
from specnav.results.errors import EvaluationError
from tests.bags.made_up import types_of

ROOT = Path(__file__).resolve().parents[2]


def words(text="go"):
    return types_of().encode(STRING, {"data": text})


def record(path, count=3, **more):
    with McapFile(path, types_of(), **more) as file:
        file.add_topic("/instruction", STRING)
        for number in range(count):
            file.write("/instruction", number, words(f"go {number}"))


def said(path):
    bag = open_bag(path)
    return [types_of().decode(STRING, message.data).data for message in bag.messages(["/instruction"])]


def test_a_finished_recording_is_one_file_and_nothing_else(tmp_path):
    record(tmp_path / "a" / "walk.mcap")
    assert said(tmp_path / "a" / "walk.mcap") == ["go 0", "go 1", "go 2"]
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["walk.mcap"]
    assert not open_bag(tmp_path / "a" / "walk.mcap").warnings


@pytest.mark.slow
def test_an_error_leaves_what_was_there(tmp_path):
    path = tmp_path / "walk.mcap"
    record(path)
    with pytest.raises(RuntimeError), McapFile(path, types_of(), replace=True) as file:
        file.add_topic("/instruction", STRING)
        file.write("/instruction", 0, words("bad"))
        raise RuntimeError
    assert said(path) == ["go 0", "go 1", "go 2"] and [p.name for p in tmp_path.iterdir()] == ["walk.mcap"]


@pytest.mark.slow
def test_a_file_that_is_there_is_replaced_only_when_told_so(tmp_path):
    path = tmp_path / "walk.mcap"
    record(path)
    with pytest.raises(EvaluationError, match="exists already; give another name, or --force"):
        record(path, 1)
    record(path, 1, replace=True)
    assert said(path) == ["go 0"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_a_file_is_replaced_even_when_told_so(tmp_path, make):
    make(tmp_path / "walk.mcap")
    with pytest.raises(EvaluationError, match="not a regular file, so it is not replaced; give another name"):
        record(tmp_path / "walk.mcap", replace=True)
    assert not (tmp_path / "walk.mcap").is_file() and os.listdir(tmp_path) == ["walk.mcap"]


@pytest.mark.parametrize("name", ["walk.bag", "walk"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(EvaluationError, match=r"does not end in \.mcap"):
        record(tmp_path / name)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(EvaluationError, match="cannot write"):
        record(tmp_path / "file" / "walk.mcap")


@pytest.mark.slow
def test_a_killed_recording_can_be_replayed_from_its_folder(tmp_path):
    program = """
import sys, time
from pathlib import Path
from specnav.bags.contents import STRING
from specnav.bags.writing import McapFile
from tests.bags.made_up import types_of
ticks = iter(range(10**9))
file = McapFile(Path(sys.argv[1]), types_of(), clock=lambda: next(ticks))
file.add_topic("/instruction", STRING)
words = types_of().encode(STRING, {"data": "go"})
for number in range(50):
    file.write("/instruction", number, words)
print("ready", flush=True)
time.sleep(60)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "walk.mcap")], stdout=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait(10)
    child.stdout.close()
    assert not (tmp_path / "walk.mcap").exists()
    bag = open_bag(tmp_path / "walk.partial" / "walk")
    assert bag.count >= 48 and any("it has no index" in warning for warning in bag.warnings)
    record(tmp_path / "walk.mcap")  # the leftover is in nobody's way
    assert said(tmp_path / "walk.mcap") == ["go 0", "go 1", "go 2"]


def test_messages_are_handed_to_the_disk_every_few_seconds(tmp_path):
    times = iter([0.0, 1.0, 2.5, 2.5, 3.0, 9.9])
    file = McapFile(tmp_path / "walk.mcap", types_of(), clock=lambda: next(times))
    file.add_topic("/instruction", STRING)
    written = file.partial / "walk" / "walk.mcap"
    sizes = []
    for number in range(2):
        file.write("/instruction", number, words())
        sizes.append(written.stat().st_size)
    assert sizes[0] < sizes[1]
    file.discard()
    assert not any(tmp_path.iterdir())


def test_a_type_nobody_knows_is_one_line(tmp_path):
    with McapFile(tmp_path / "walk.mcap", types_of()) as file:
        with pytest.raises(EvaluationError, match="its type far_away/msg/Thing is not known here"):
            file.add_topic("/thing", "far_away/msg/Thing")
        file.add_topic("/instruction", STRING)


def test_types_of_other_packages_are_learned_with_what_they_are_made_of(tmp_path):
    texts = {
        "a/msg/Outer": "Inner[] many\nInner one\nfloat64 x",
        "a/msg/Inner": "std_msgs/Header header\nint32[3] n",
    }
    types = types_of()
    types.add_missing("a/msg/Outer", texts.get)
    data = types.encode("a/msg/Outer", {"x": 1.5, "many": [{"n": [1, 2, 3]}]})
    seen = types.decode("a/msg/Outer", data)
    assert seen.x == 1.5 and list(seen.many[0].n) == [1, 2, 3] and list(seen.one.n) == [0, 0, 0]
    with pytest.raises(EvaluationError, match="definition of b/msg/Gone is not installed"):
        types.add_missing("b/msg/Gone", texts.get)


@pytest.mark.slow
def test_all_messages_of_our_interfaces_are_known_and_travel():
    names = [f"{INTERFACES.name}/msg/{path.stem}" for path in (INTERFACES / "msg").glob("*.msg")]
    assert len(names) >= 3
    for distro in ("humble", "jazzy", "kilted"):
        types = types_of(distro)
        for name in names:
            types.decode(name, types.encode(name, {}))


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        ("/robot1/camera/image_raw/compressed", "sensor_msgs/msg/CompressedImage", True),
        ("/camera/image_raw", "sensor_msgs/msg/Image", False),
        ("/odom", "nav_msgs/msg/Odometry", True),
        ("/cmd_vel", "geometry_msgs/msg/TwistStamped", True),
        ("/robot1/instruction", "std_msgs/msg/String", True),
        ("/chatter", "std_msgs/msg/String", False),
        ("/vlm_nav_node/metrics", "spec_vlm_nav_interfaces/msg/DecisionMetrics", True),
        ("/rosout", "rcl_interfaces/msg/Log", False),
    ],
)
def test_what_is_recorded_unless_topics_are_named(name, kind, wanted):
    assert is_wanted(name, kind) is wanted


@pytest.mark.slow
def test_reading_bags_needs_no_model_and_no_ros():
    program = (
        "import sys, specnav.bags.labels, specnav.bags.writing, specnav.report.replay;"
        "heavy = 'torch', 'rclpy', 'spec_vlm_nav.ros', 'specnav.cli', 'specdec.models';"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"
