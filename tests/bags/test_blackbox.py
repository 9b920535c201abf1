"""What the black box writes, read by `specnav blackbox` and decided again by `specnav replay`: the committed bag's
messages go through a black box in simulated time."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from spec_vlm_nav.blackbox.box import BlackBox, BoxConfig
from spec_vlm_nav.blackbox.folder import Folder
from spec_vlm_nav.blackbox.mcap_file import Channel, write_mcap
from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.status import Status
from specnav.bags.contents import METRICS, STRING, choose_image_topic
from specnav.bags.records import ReplayResults
from specnav.bags.source import open_bag
from specnav.blackbox.files import read_file
from specnav.record.types import own_types
from tests.bags.made_up import MadeUp
from tests.helpers.commands import run_here

pytestmark = pytest.mark.slow

ROOMS = Path(__file__).resolve().parents[1] / "data" / "rooms.mcap"
IMAGE, INSTRUCTION = "/camera/image_raw/compressed", "/instruction"
KEEP_S = 20.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with one file: the last seconds of the committed bag, then a fault."""
    found = tmp_path_factory.mktemp("ros home") / "spec_vlm_nav" / "blackbox"
    bag, types = open_bag(ROOMS), own_types()
    for topic in bag.topics:
        types.learn(topic)
    box = BlackBox(BoxConfig(keep_s=KEEP_S, after_s=0.0), {IMAGE}, {INSTRUCTION}, lambda trigger: None)
    for message in bag.messages([topic.name for topic in bag.topics]):
        at = message.time_ns / 1e9
        box.ring.add(at, message.topic, message.data)
        if message.topic.endswith("metrics"):
            said = types.decode(METRICS, message.data)
            box.on_decided((said.frame_stamp.sec, said.frame_stamp.nanosec), said.instruction_text, at)
    for state in (MotionState.MOVING, MotionState.NO_RESPONSE):
        box.on_status(Status(state, 1, 26, "no [bold]answer[/] from the base"), at)
    recording = box.take(at, message.time_ns, {"versions": {"ros": "kilted"}, "parameters": {}})
    channels = {topic.name: Channel(topic.kind, topic.definition) for topic in bag.topics}
    write = partial(write_mcap, recording=recording, channels=channels)
    Folder(found, 10**9).write(message.time_ns, "NO_RESPONSE", 0, write)
    return found


@pytest.fixture
def file(folder):
    (found,) = folder.glob("*-NO_RESPONSE.mcap")
    return found


def test_replay_decides_the_black_boxs_frames_again(file, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    how = ("--methods", "fsd,ar", "--every", "99", "--limit", "4")
    code, _, said = run_here(monkeypatch, capsys, "replay", file, *how, "--out", out)
    assert code == 0, said
    results = ReplayResults.load(out)
    assert [row.method for row in results.rows] == ["fsd", "ar"] and results.identical_tokens is True
    for row in results.rows:
        assert row.decisions == 4 and row.scored >= 3 and row.agreed >= row.scored - 1
    assert not results.bag.warnings and results.bag.duration_s <= KEEP_S


def test_the_instruction_that_was_given_before_is_in_the_file(file):
    bag = open_bag(file)
    given = [(m.time_ns, own_types().decode(STRING, m.data).data) for m in bag.messages([INSTRUCTION])]
    first_ns = min(m.time_ns for m in bag.messages([topic.name for topic in bag.topics]))
    assert len(given) == 2 and given[0][0] == first_ns  # given 2.5 s before the file begins


def test_the_list_says_when_why_and_how_long(folder, file, monkeypatch, capsys):
    (folder / "robot1").mkdir(exist_ok=True)
    stem = "blackbox-20260102-030405Z-ESTOP"
    for name in (f"{stem}.mcap", f"robot1/{stem}-2.mcap.partial"):
        (folder / name).write_bytes(b"\x89MCAP0\r\n")
    (folder / "walk.mcap").write_bytes(b"")
    code, out, _ = run_here(monkeypatch, capsys, "blackbox", folder)
    lines = out.splitlines()
    assert code == 0 and len(lines) == 5
    (line,) = [one for one in lines if file.name in one]
    assert " NO_RESPONSE " in line and " 20.0 " in line and "no [bold]answer[/] from the base" in line
    assert "cannot be read" in next(one for one in lines if "ESTOP.mcap" in one)
    assert "writing was interrupted" in next(one for one in lines if ".partial" in one)
    assert lines[-1].startswith("3 files, ")
    monkeypatch.setenv("ROS_HOME", str(folder.parents[1]))
    assert run_here(monkeypatch, capsys, "blackbox")[1] == out


def test_one_file_is_shown_as_a_timeline(folder, file, monkeypatch, capsys):
    code, out, _ = run_here(monkeypatch, capsys, "blackbox", folder, "--show", file.name)
    lines = out.splitlines()
    assert code == 0 and lines[0].startswith(f"{file.name}: NO_RESPONSE, 20.0 s")
    assert "state: NO_RESPONSE (command 26), no [bold]answer[/] from the base" in lines
    told = [line.split() for line in lines if " s  " in line]
    kinds = [words[2] for words in told]
    assert kinds.count("metrics") >= 10 and kinds.count("motion_command") >= 10
    assert kinds.count("instruction") == 2
    assert told[0][2] == "instruction" and -20.1 < float(told[0][0]) < -19
    assert told[-1][2:4] == [">>>", "NO_RESPONSE"] and float(told[-1][0]) == 0
    assert run_here(monkeypatch, capsys, "blackbox", "--show", file)[1] == out


def test_a_depth_topic_is_not_taken_for_the_camera(tmp_path):
    bag = MadeUp()
    bag.frame(topic="/depth")
    alone = open_bag(bag.save(tmp_path / "alone"))
    assert choose_image_topic(alone, None).name == "/depth"
    bag.frame(topic="/image")
    both = open_bag(bag.save(tmp_path / "both"))
    assert choose_image_topic(both, None).name == "/image"
    assert choose_image_topic(both, "depth").name == "/depth"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nowhere"], "no folder /nowhere; give the value of blackbox_node's parameter folder"),
        (["--show", "/nowhere.mcap"], "no file /nowhere.mcap"),
        (["--show", __file__], "is neither .mcap nor .db3"),
    ],
)
def test_wrong_input_is_one_line(arguments, said, monkeypatch, capsys):
    code, _, told = run_here(monkeypatch, capsys, "blackbox", *arguments)
    assert code == 1 and said in told and told.count("\n") == 1


def test_an_empty_folder_is_no_error(tmp_path, monkeypatch, capsys):
    code, out, _ = run_here(monkeypatch, capsys, "blackbox", tmp_path)
    assert code == 0 and out == f"no black-box files in {tmp_path}\n"


@pytest.mark.timeout(20)
def test_what_is_renamed_meanwhile_and_what_is_no_file_holds_up_no_list(tmp_path, monkeypatch, capsys):
    pipe, gone = (f"blackbox-20260102-03040{second}Z-ESTOP.mcap" for second in range(2))
    os.mkfifo(tmp_path / pipe)
    (tmp_path / gone).symlink_to("renamed")
    code, out, _ = run_here(monkeypatch, capsys, "blackbox", tmp_path)
    lines = out.splitlines()
    assert code == 0 and len(lines) == 3 and pipe in lines[1] and "is not a regular file" in lines[1]
    assert read_file(tmp_path / gone).problem == "cannot be read: No such file or directory"
