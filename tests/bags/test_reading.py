"""Bags in every shape: formats, distributions, broken files, and what is said about them."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from rosbags.rosbag2 import CompressionMode

from spec_vlm_nav.camera.images import RawImage, from_raw
from specnav.bags.contents import choose_image_topic, pictures, read_contents
from specnav.bags.source import open_bag
from specnav.lookback.walk import read_walk
from specnav.replay.plan import VOCABULARY
from specnav.results.errors import EvaluationError
from tests.bags.made_up import CAMERA, START_NS, STEP_NS, MadeUp, encoded, raw_image, types_of, walk

pytestmark = pytest.mark.slow


def contents_of(path, distro="kilted", topic=None):
    bag, types = open_bag(path), types_of(distro)
    return bag, types, read_contents(bag, types, choose_image_topic(bag, topic), VOCABULARY)


def pictures_of(path, distro="kilted"):
    bag, types, contents = contents_of(path, distro)
    return list(pictures(bag, types, contents.image, {frame.number for frame in contents.frames}))


@pytest.mark.parametrize(
    ("storage", "distro"), [("mcap", "humble"), ("mcap", "kilted"), ("sqlite3", "humble"), ("sqlite3", "jazzy")]
)
def test_a_walk_is_read_from_folder_and_bare_file_alike(tmp_path, storage, distro):
    folder = walk().save(tmp_path / "walk", storage, distro)
    (file,) = [*folder.glob("*.mcap"), *folder.glob("*.db3")]
    for path in (folder, file):
        bag, _, contents = contents_of(path, distro)
        assert not bag.warnings
        assert [f.stamp_ns for f in contents.frames] == [START_NS + STEP_NS * n for n in range(1, 7)]
        assert contents.instructions == [(START_NS, "find the blue lamp")]
        assert {r.action for r in contents.references.values()} == {"forward 50"}
        assert len(contents.references) == 3 and contents.source == "metrics"
        assert len(pictures_of(path, distro)) == 6


@pytest.mark.parametrize("mode", [CompressionMode.STORAGE, CompressionMode.MESSAGE, CompressionMode.FILE])
def test_compressed_bags(tmp_path, mode):
    assert len(pictures_of(walk().save(tmp_path / "walk", "mcap", compression=mode))) == 6


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_folder_without_metadata_is_read_file_by_file(tmp_path, storage):
    folder = walk().save(tmp_path / "walk", storage)
    (folder / "metadata.yaml").unlink()
    bag, _, contents = contents_of(folder)
    assert bag.warnings == ["walk: metadata.yaml is missing; its files are read one by one"]
    assert len(contents.frames) == 6 and len(pictures_of(folder)) == 6


def test_split_bags_are_read_in_the_order_of_their_numbers(tmp_path):
    folder = tmp_path / "split"
    folder.mkdir()
    for number in (9, 10):
        part = MadeUp(now_ns=START_NS + number * 10**9).say("go")
        part.frame()
        part.save(tmp_path / f"part_{number}")
        shutil.copy(tmp_path / f"part_{number}" / f"part_{number}.mcap", folder)
    _, _, contents = contents_of(folder)
    stamps = [frame.stamp_ns for frame in contents.frames]
    assert stamps == sorted(stamps) and len(stamps) == 2


def test_bags_without_definitions_use_those_of_the_release(tmp_path):
    _, _, contents = contents_of(walk().save_without_definitions(tmp_path / "old", "humble"), "humble")
    assert len(contents.frames) == 6 and len(contents.references) == 3


@pytest.mark.parametrize("mode", [CompressionMode.NONE, CompressionMode.STORAGE])
def test_of_a_truncated_mcap_the_readable_part_is_used_and_said(tmp_path, mode):
    """Cut anywhere: tests/bags/test_losing_nothing.py."""
    folder = walk(100, noisy=True).save(tmp_path / "walk", "mcap", compression=mode)
    file = tmp_path / "cut.mcap"
    data = (folder / "walk.mcap").read_bytes()
    file.write_bytes(data[: int(len(data) * 0.6)])
    bag, _, contents = contents_of(file)
    assert 20 < len(contents.frames) <= 100
    assert len(pictures_of(file)) == len(contents.frames)
    (warning,) = bag.warnings
    assert "cut off" in warning and f"{bag.count} messages read" in warning and "% of the file" in warning


def test_a_folder_whose_file_was_cut_is_read_as_well(tmp_path):
    folder = walk(50, noisy=True).save(tmp_path / "walk")
    data = (folder / "walk.mcap").read_bytes()
    (folder / "walk.mcap").write_bytes(data[: len(data) // 2])
    bag, _, contents = contents_of(folder)
    assert contents.frames and any("cut off" in words for words in bag.warnings)


def test_an_mcap_of_which_only_the_index_is_missing_loses_nothing(tmp_path):
    folder = walk(50).save(tmp_path / "walk")
    data = (folder / "walk.mcap").read_bytes()
    (tmp_path / "cut.mcap").write_bytes(data[:-40])
    _, _, contents = contents_of(tmp_path / "cut.mcap")
    assert len(contents.frames) == 50


def test_a_damaged_database_is_one_line(tmp_path):
    folder = walk(50).save(tmp_path / "walk", "sqlite3")
    (tmp_path / "cut.db3").write_bytes((folder / "walk.db3").read_bytes()[:5000])
    with pytest.raises(EvaluationError, match=r"cut\.db3"):
        open_bag(tmp_path / "cut.db3")


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (b"", ".mcap"),
        (b"", ".db3"),
        (b"\x89MCAP0\r\n", ".mcap"),
        (b"PK\x03\x04" + bytes(100), ".db3"),
        (bytes(1000), ".mcap"),
    ],
)
def test_what_is_no_bag_is_one_line(tmp_path, content, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    with pytest.raises(EvaluationError) as error:
        open_bag(path)
    assert "holds no messages" in str(error.value) and "\n" not in str(error.value)


def test_random_damage_never_ends_in_a_traceback(tmp_path):
    data = bytearray((walk(40).save(tmp_path / "walk") / "walk.mcap").read_bytes())
    random = np.random.default_rng(0)
    for number in range(16):
        broken = bytearray(data)
        for place in random.integers(8, len(data), 20):
            broken[place] = random.integers(256)
        path = tmp_path / f"broken{number}.mcap"
        path.write_bytes(broken)
        try:
            bag, types, contents = contents_of(path)
        except EvaluationError as error:
            assert "\n" not in str(error)
        else:
            list(pictures(bag, types, contents.image, {f.number for f in contents.frames}))


SHOWN = np.random.default_rng(1).integers(0, 256, (6, 8, 4), np.uint8)


@pytest.mark.parametrize(
    ("encoding", "sent", "seen", "padding"),
    [
        ("bgr8", SHOWN[:, :, 2::-1], SHOWN[:, :, :3], 5),
        ("mono8", SHOWN[:, :, :1], np.repeat(SHOWN[:, :, :1], 3, axis=2), 0),
    ],
)
def test_raw_pictures_keep_their_colours(tmp_path, encoding, sent, seen, padding):
    """Every encoding: tests/robot/test_images.py."""
    bag = MadeUp().say("go")
    bag.frame(raw_image(encoding, sent, padding), topic="/camera/image_raw")
    ((_, pixels),) = pictures_of(bag.save(tmp_path / "raw"))
    assert isinstance(pixels, RawImage)
    raw = RawImage(pixels.encoding, pixels.width, pixels.height, pixels.step, pixels.data)
    assert np.array_equal(np.asarray(from_raw(raw)), seen)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_compressed_pictures_pass_through_unchanged(tmp_path, kind):
    bag = MadeUp().say("go")
    bag.frame(encoded(9, kind))
    ((_, data),) = pictures_of(bag.save(tmp_path / "bag", "sqlite3"))
    assert data == encoded(9, kind)


def test_a_message_that_is_cut_within_is_no_picture_and_the_others_are(tmp_path):
    folder = walk(3).save(tmp_path / "walk")
    bag, types, contents = contents_of(folder)
    whole = bag.messages

    def messages(names):
        for number, message in enumerate(whole(names)):
            yield type(message)(
                message.topic, message.time_ns, message.data[:30] if number == 1 else message.data
            )

    bag.messages = messages
    found = dict(pictures(bag, types, contents.image, {0, 1, 2}))
    assert found[1] is None and found[0] and found[2]


def test_no_image_topic_names_the_topics_there_are(tmp_path):
    folder = MadeUp().say("go").say("x", "/chatter").save(tmp_path / "words")
    with pytest.raises(
        EvaluationError, match=r"no image topic; topics: /chatter \(std_msgs/msg/String, 1 message\)"
    ):
        contents_of(folder)


def test_several_image_topics_are_named_and_one_can_be_chosen(tmp_path):
    bag = walk(2)
    bag.frame(raw_image("mono8", SHOWN[:, :, :1]), topic="/rear/image")
    folder = bag.save(tmp_path / "two")
    with pytest.raises(
        EvaluationError, match=r"choose one with --image-topic: /camera/compressed .* /rear/image"
    ):
        contents_of(folder)
    assert len(contents_of(folder, topic="rear/image")[2].frames) == 1
    with pytest.raises(EvaluationError, match=r"no topic /elsewhere; topics: /camera/compressed"):
        contents_of(folder, topic="/elsewhere")
    with pytest.raises(EvaluationError, match="which is not an image"):
        contents_of(folder, topic="/instruction")


@pytest.mark.parametrize("own", ["/one", ""])
def test_of_two_robots_in_a_bag_only_the_one_with_the_camera_counts(tmp_path, own):
    action, bag = "The next action is turn right 15 degree.", MadeUp()
    for robot, words in ((own, "find the lamp"), ("/two", "find the box")):
        bag.say(words, f"{robot}/instruction")
    at = bag.frame(topic=f"{own}/camera/compressed")
    bag.frame(topic="/two/camera/compressed", stamp_ns=at)  # both follow one simulated clock
    bag.decided(at, action, robot=own).decided(at, action.replace("right", "left"), robot="/two")
    path, camera = bag.save(tmp_path / "two"), f"{own}/camera/compressed"
    _, _, contents = contents_of(path, topic=camera)
    assert [words for _, words in contents.instructions] == ["find the lamp"]
    assert [one.action for one in contents.references.values()] == ["turn right 15"]
    shown = read_walk(path, camera)
    assert [one["model_action"] for one in shown.decisions] == ["turn right 15"]
    assert [event.text for event in shown.events if event.what == "instruction"] == ["find the lamp"]


def test_an_empty_bag_is_one_line(tmp_path):
    with pytest.raises(EvaluationError, match="holds no messages"):
        open_bag(MadeUp().save(tmp_path / "empty"))
    (tmp_path / "nothing").mkdir()
    with pytest.raises(EvaluationError, match=r"holds no \.mcap and no \.db3"):
        open_bag(tmp_path / "nothing")
    with pytest.raises(EvaluationError, match="no bag at"):
        open_bag(tmp_path / "absent")


def test_frames_without_stamps_are_known_by_the_time_of_recording(tmp_path):
    bag = MadeUp().say("go")
    for _ in range(3):
        bag.frame(stamp_ns=0)
    _, _, contents = contents_of(bag.save(tmp_path / "zero"))
    assert [f.stamp_ns for f in contents.frames] == [f.time_ns for f in contents.frames]
    assert "same header stamp" in contents.notes[0]


def test_references_come_from_commands_where_no_metrics_were_recorded(tmp_path):
    bag = MadeUp().say("go")
    first, second, third = bag.frame(), bag.frame(), bag.frame()
    bag.commanded(first, "turn left 30").commanded(second, "forward 50", source=1).commanded(
        third, "stop", kind=0
    )
    _, _, contents = contents_of(bag.save(tmp_path / "commands"))
    assert contents.source == "motion commands"
    assert {stamp: r.action for stamp, r in contents.references.items()} == {
        first: "turn left 30",
        third: "stop",
    }


def test_a_recorded_answer_without_an_action_is_a_reference_of_its_own(tmp_path):
    bag = MadeUp().say("go")
    bag.decided(bag.frame(), "", code=6).decided(bag.frame(), "", code=5)
    _, _, contents = contents_of(bag.save(tmp_path / "failed"))
    assert [r.action for r in contents.references.values()] == ["no action"]


def test_actions_on_a_topic_belong_to_the_last_frame_before_them(tmp_path):
    bag = MadeUp().say("go")
    at = bag.frame()
    bag.now_ns += 1000
    bag.say("The next action is turn right 15 degree.", "/vlm_nav_node/action")
    bag.frame()
    _, _, contents = contents_of(bag.save(tmp_path / "said"))
    assert {s: r.action for s, r in contents.references.items()} == {at: "turn right 15"}
    assert contents.source == "action topic" and contents.notes


def test_decisions_about_frames_that_are_not_there_are_counted(tmp_path):
    bag = walk(2)
    bag.decided(5, "The next action is turn right 15 degree.")
    _, _, contents = contents_of(bag.save(tmp_path / "lost"))
    assert contents.notes[0].startswith(
        "1 of 2 recorded decisions (metrics) are about frames that are not in the bag"
    )


def test_the_camera_is_told_by_its_type(tmp_path):
    bag, _, contents = contents_of(walk().save(tmp_path / "walk"))
    assert contents.image.name == CAMERA and bag.topic("camera/compressed") is contents.image


def test_instructions_the_recording_missed_are_those_beside_the_decisions(tmp_path):
    bag, action = MadeUp(), "The next action is turn right 15 degree."
    times = [bag.frame() for _ in range(2)]
    bag.decided(times[1], action, instruction="find the lamp")
    times.append(bag.frame())
    bag.decided(times[2], action, instruction="find the lamp")
    bag.now_ns += 10
    bag.say("Find the door.")
    times.append(bag.frame())
    bag.decided(times[3], action, instruction="Find the door")
    times.append(bag.frame())
    bag.decided(times[4], action, instruction="find the box")
    _, _, contents = contents_of(bag.save(tmp_path / "missed"))
    asked = [contents.instruction_at(frame)[1] for frame in contents.frames]
    assert asked == ["", "find the lamp", "find the lamp", "Find the door.", "find the box"]
    assert len(contents.instructions) == 3
