"""Files of the black box: whole or not there, bounded on disk, readable by others; and the threads that make them."""

import errno
import os
import threading
import time
from pathlib import Path

import pytest
from mcap.reader import make_reader

from spec_vlm_nav.blackbox.box import METADATA, Recording
from spec_vlm_nav.blackbox.definitions import definition_of, members_of
from spec_vlm_nav.blackbox.folder import NAME, Folder, Usage, default_folder, reason_of
from spec_vlm_nav.blackbox.mcap_file import Channel, write_mcap
from spec_vlm_nav.blackbox.ring import Entry, RingContents
from spec_vlm_nav.blackbox.triggers import Trigger
from spec_vlm_nav.blackbox.writer import FileThread, PictureEncoder
from spec_vlm_nav.common.errors import BlackboxError, FrameError
from specnav.bags.source import open_bag
from specnav.bags.types import Types
from specnav.record.types import own_definitions
from specnav.supervise.waiting import wait_until

NOW_NS = 1_800_000_000_000_000_000
NAMES = "blackbox-20270115-080000Z-"
STRING = "string data\n"
STATUS = "spec_vlm_nav_interfaces/msg/MotionStatus"
HEADER = "builtin_interfaces/Time stamp\nstring frame_id\n"
TIME = "int32 sec\nuint32 nanosec\n"
TEXTS = {
    **own_definitions(),
    "std_msgs/msg/String": STRING,
    "std_msgs/msg/Empty": "",
    "std_msgs/msg/Header": HEADER,
    "builtin_interfaces/msg/Time": TIME,
}


def fill(size):
    return lambda stream: stream.write(b"x" * size)


def own_names(folder):
    return sorted(path.name for path in folder.iterdir())


def recording(*entries, lasting=(), word="NO_RESPONSE"):
    """Taken at 100 s of the steady clock."""
    contents = RingContents(tuple(entries), tuple(lasting))
    return Recording((Trigger(99.0, word, "why"),), 0, contents, 100.0, NOW_NS, {"state": "MOVING"})


# -- the folder


def test_a_file_is_named_after_its_time_and_reason(tmp_path):
    folder = Folder(tmp_path / "new" / "box", 1000)
    path = folder.write(NOW_NS, "NO_RESPONSE", 10, fill(10))
    assert path.name == f"{NAMES}NO_RESPONSE.mcap" and path.read_bytes() == b"x" * 10
    again = folder.write(NOW_NS, "NO_RESPONSE", 10, fill(20))
    assert again.name == f"{NAMES}NO_RESPONSE-2.mcap" and reason_of(again) == "NO_RESPONSE"
    assert folder.usage() == Usage(2, 30)


@pytest.mark.parametrize("word", ["../../etc/passwd", "a b\0c", "", "é" * 500, "-x.mcap", "A" * 300])
def test_no_reason_can_break_a_name(tmp_path, word):
    path = Folder(tmp_path, 1000).write(NOW_NS, word, 1, fill(1))
    assert path.parent == tmp_path and NAME.fullmatch(path.name) and len(path.name) < 100


def test_the_oldest_files_go_and_foreign_ones_stay(tmp_path):
    (tmp_path / "walk.mcap").write_bytes(b"x" * 5000)
    (tmp_path / "blackbox-notes.txt").write_bytes(b"x" * 5000)
    (tmp_path / "blackbox-20270115-080000Z-KEEP").mkdir()
    folder = Folder(tmp_path, 1000)
    for number in range(20):
        path = folder.write(NOW_NS + number * 10**9, "A", 300, fill(300))
        os.utime(path, (number, number))
        assert folder.usage().size <= 1000
    assert [path.name[18:24] for path in folder.files()] == ["080017", "080018", "080019"]
    assert len(own_names(tmp_path)) == 3 + 3


def test_room_is_made_before_the_file_is_written(tmp_path):
    folder = Folder(tmp_path, 1000)
    folder.write(NOW_NS, "A", 900, fill(900))
    seen = []

    def look(stream):
        seen.append(folder.usage().size)
        stream.write(b"x" * 900)

    folder.write(NOW_NS + 10**9, "B", 900, look)
    assert seen == [0] and folder.usage() == Usage(1, 900)


def test_a_file_larger_than_the_bound_is_kept_alone(tmp_path):
    folder = Folder(tmp_path, 100)
    folder.write(NOW_NS, "A", 50, fill(50))
    folder.write(NOW_NS, "B", 500, fill(500))
    assert own_names(tmp_path) == [f"{NAMES}B.mcap"]


def test_while_it_is_written_only_a_partial_file_is_there_and_a_failure_leaves_nothing(tmp_path):
    folder = Folder(tmp_path, 1000)

    def stop_half_way(stream):
        stream.write(b"x" * 100)
        assert own_names(tmp_path) == [f"{NAMES}A.mcap.partial"]
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        folder.write(NOW_NS, "A", 100, stop_half_way)
    assert own_names(tmp_path) == []


def test_robots_that_write_into_one_folder_at_once_keep_all_their_files(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda path: False)  # both look before either begins

    def fill_after_another(stream):
        Folder(tmp_path, 1000).write(NOW_NS, "A", 20, fill(20))
        stream.write(bytes(10))

    Folder(tmp_path, 1000).write(NOW_NS, "A", 10, fill_after_another)
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {
        f"{NAMES}A.mcap": 10,
        f"{NAMES}A-2.mcap": 20,
    }


def test_what_a_power_cut_left_counts_and_goes_first(tmp_path):
    left = tmp_path / f"{NAMES}A.mcap.partial"
    left.write_bytes(b"x" * 600)
    os.utime(left, (1, 1))
    folder = Folder(tmp_path, 1000)
    assert folder.usage() == Usage(1, 600)
    folder.write(NOW_NS, "A", 10, fill(10))
    assert own_names(tmp_path) == [f"{NAMES}A-2.mcap", left.name]
    folder.write(NOW_NS, "B", 900, fill(900))
    assert left.name not in own_names(tmp_path)


def test_a_full_disk_is_an_error_of_the_system():
    with pytest.raises(OSError) as told, open("/dev/full", "wb") as stream:
        write_mcap(
            stream, recording(Entry(99.0, "/a", os.urandom(2_000_000))), {"/a": Channel("x/msg/Y", None)}
        )
    assert told.value.errno == errno.ENOSPC


def test_a_folder_that_cannot_be_used_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for wrong in (tmp_path / "file", tmp_path / "file" / "box", tmp_path / "a\0b", tmp_path / ("x" * 300)):
        with pytest.raises(BlackboxError, match=r"cannot be used .*: set the parameter folder") as told:
            Folder(wrong, 1000).prepare()
        assert "\n" not in str(told.value)
    assert Folder(tmp_path / "box", 1000).prepare() == "" and (tmp_path / "box").is_dir()


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EIO])
def test_a_disk_that_may_come_back_is_only_told(tmp_path, monkeypatch, number):
    def refuse(self, **how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert os.strerror(number) in Folder(tmp_path / "box", 1000).prepare()


def test_a_folder_of_others_is_refused_and_a_read_only_disk_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(BlackboxError, match="Permission denied"):
        Folder(tmp_path, 1000).prepare()
    flags = type("Flags", (), {"f_flag": os.ST_RDONLY})
    monkeypatch.setattr(os, "statvfs", lambda path: flags)
    assert "Read-only" in Folder(tmp_path, 1000).prepare()


def test_the_folder_follows_ros_home(monkeypatch):
    monkeypatch.setenv("ROS_HOME", "/data/ros")
    assert default_folder() == Path("/data/ros/spec_vlm_nav/blackbox")
    monkeypatch.delenv("ROS_HOME")
    assert default_folder() == Path.home() / ".ros/spec_vlm_nav/blackbox"


# -- definitions


def test_the_types_that_a_type_is_made_of():
    text = """# Foo foo
Header header
uint8 A=1
string<=10 name "x"
string NAME="geometry_msgs/Point p"
float64[36] covariance
geometry_msgs/Point[] points   # Bar bar
geometry_msgs/msg/Pose pose
Own[<=5] own
Own again
"""
    assert members_of("pkg/msg/All", text) == [
        "std_msgs/msg/Header", "geometry_msgs/msg/Point", "geometry_msgs/msg/Pose", "pkg/msg/Own"
    ]  # fmt: skip


def test_a_definition_holds_every_part_once_and_can_be_read():
    text = definition_of(STATUS, TEXTS.get)
    assert text.count("MSG: std_msgs/Header\n") == text.count("MSG: builtin_interfaces/Time\n") == 1
    assert definition_of("std_msgs/msg/Empty", TEXTS.get) == ""


def test_a_definition_with_an_unknown_part_is_not_known():
    assert definition_of("a/msg/B", TEXTS.get) is None
    assert definition_of("a/msg/B", {"a/msg/B": "C c\n"}.get) is None
    assert definition_of("a/msg/B", {"a/msg/B": "B b\n"}.get) == "B b\n"  # never ends by itself


# -- the mcap file


def test_a_file_holds_the_bytes_times_types_and_why(tmp_path):
    types = Types(own_definitions())
    words = types.encode("std_msgs/msg/String", {"data": "find the lamp"})
    said = types.encode(STATUS, {"state": 13, "reason": "no answer", "sequence": 7})
    hostile = b"\xff" * 100
    channels = {
        "/instruction": Channel("std_msgs/msg/String", STRING),
        "/motion_status": Channel(STATUS, definition_of(STATUS, TEXTS.get)),
        "/stop": Channel("std_msgs/msg/Empty", ""),
        "/strange": Channel("strange_msgs/msg/Unknown", None),
    }
    entries = (
        Entry(41.5, "/motion_status", said),
        Entry(50.0, "/strange", b"anything"),
        Entry(60.0, "/motion_status", hostile),
        Entry(99.5, "/stop", b"\0\1\0\0\0"),
    )
    path = tmp_path / "box.mcap"
    with path.open("wb") as stream:
        write_mcap(stream, recording(*entries, lasting=[Entry(1.0, "/instruction", words)]), channels)
    bag = open_bag(path)
    assert not bag.warnings
    assert {topic.name: topic.count for topic in bag.topics} == {
        "/instruction": 1, "/motion_status": 2, "/stop": 1, "/strange": 1
    }  # fmt: skip
    found = list(bag.messages([topic.name for topic in bag.topics]))
    assert [m.time_ns - NOW_NS for m in found] == [-58_500_000_000] * 2 + [
        -50 * 10**9,
        -40 * 10**9,
        -(10**9) // 2,
    ]
    assert [m.data for m in found if m.topic == "/motion_status"] == [said, hostile]
    assert (bag.topic("/strange").encoding, bag.topic("/stop").encoding) == ("", "ros2msg")
    fresh = Types({})  # knows nothing of ours: the file explains itself
    fresh.learn(bag.topic("/motion_status"))
    assert fresh.decode(STATUS, said).reason == "no answer"
    with path.open("rb") as stream:
        reader = make_reader(stream, validate_crcs=True)
        assert reader.get_header().profile == "ros2"
        (told,) = [one for one in reader.iter_metadata() if one.name == METADATA]
        messages = list(reader.iter_messages(topics=["/instruction"]))
    assert told.metadata["reason"] == "NO_RESPONSE" and told.metadata["state"] == "MOVING"
    assert messages[0][2].publish_time == NOW_NS - 99 * 10**9  # logged at the beginning, received long before


def test_an_empty_recording_is_a_file_too(tmp_path):
    path = tmp_path / "box.mcap"
    with path.open("wb") as stream:
        write_mcap(stream, recording(), {})
    with path.open("rb") as stream:
        assert make_reader(stream).get_summary().statistics.message_count == 0


# -- the threads


def test_the_thread_writes_and_lives_on_when_a_file_fails(tmp_path):
    channels = {"/a": Channel("std_msgs/msg/String", STRING)}
    troubles = [OSError(errno.ENOSPC, "No space left on device"), ValueError("strange\nthing"), None]

    def write(stream, one):
        if (trouble := troubles.pop(0)) is not None:
            raise trouble
        write_mcap(stream, one, channels)

    told = []
    files = FileThread(Folder(tmp_path, 10**6), write, told.append)
    for _ in range(3):
        files.submit(recording(Entry(99.0, "/a", b"hello")))
        assert files.is_busy or told
    assert files.close(10)
    full, strange, good = told
    assert full.path is strange.path is None and full.usage == Usage()
    assert full.error == f"cannot write into {tmp_path}: No space left on device"
    assert strange.error == "cannot write this recording: ValueError: strange thing"
    assert good.error == "" and good.path.is_file() and good.size == good.path.stat().st_size
    assert files.usage == Usage(1, good.size) and own_names(tmp_path) == [
        f"{NAMES[:-8]}075959Z-NO_RESPONSE.mcap"
    ]


@pytest.mark.realtime
def test_a_slow_disk_keeps_nobody_waiting(tmp_path):
    go = threading.Event()
    files = FileThread(Folder(tmp_path, 10**6), lambda stream, one: go.wait(10), lambda written: None)
    began = time.monotonic()
    files.submit(recording())
    assert time.monotonic() - began < 0.5 and files.is_busy
    assert not files.close(0.05)
    go.set()
    assert files.close(10)


def test_raw_pictures_are_encoded_at_a_bounded_rate_and_broken_ones_are_told():
    kept, told = [], []

    def encode(data):
        if data == b"broken":
            raise FrameError("no picture")
        if data == b"worse":
            raise KeyError("x")
        return data.upper()

    encoder = PictureEncoder(encode, lambda at, data: kept.append((at, data)), told.append, rate_hz=5)
    for tick in range(40):
        encoder.offer(tick / 20, b"a")
        wait_until(lambda tick=tick: len(kept) == tick // 4 + 1, 5, "the picture")
    for at, data in ((10.0, b"broken"), (11.0, b"worse"), (12.0, b"b")):
        encoder.offer(at, data)
        wait_until(lambda at=at: len(kept) + len(told) == at + 1, 5, "the picture")
    encoder.close(5)
    assert [at for at, _ in kept[:3]] == [0.0, 0.2, 0.4] and kept[-1] == (12.0, b"B")
    assert told == ["camera picture not kept: no picture", "camera picture not kept: KeyError: 'x'"]


@pytest.mark.realtime
def test_a_stuck_encoder_takes_no_more_than_one_picture():
    go, seen = threading.Event(), []
    encoder = PictureEncoder(
        lambda data: bytes(go.wait(10)), lambda at, data: seen.append(at), seen.append, 60
    )
    began = time.monotonic()
    for tick in range(200):
        encoder.offer(float(tick), bytes(1000))
    assert time.monotonic() - began < 1
    go.set()
    encoder.close(5)
    assert len(seen) <= 2
