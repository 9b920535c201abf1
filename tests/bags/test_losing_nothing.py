"""Recordings as crashes, other tools and wrong clocks leave them: every message is used, or named with a reason."""

from __future__ import annotations

import os
import random
import shutil
import struct
from pathlib import Path

import pytest
from backports import zstd
from mcap.writer import CompressionType
from rosbags.rosbag2 import CompressionMode

from specnav.bags import storage
from specnav.bags.contents import choose_image_topic, pictures, read_contents
from specnav.bags.source import open_bag
from specnav.bags.storage import BagMessage, BagTopic, MessageRun, in_order
from specnav.bags.timeline import MAX_PAUSE_S, BagTimeline
from specnav.lookback.walk import find_bag
from specnav.play.choice import choose, left_out
from specnav.play.pace import PlaybackPace
from specnav.replay.plan import VOCABULARY
from specnav.results.errors import EvaluationError
from tests.bags import broken
from tests.bags.broken import chunk, frame_bytes, mcap, message, opening, splits, times, walk_part
from tests.bags.made_up import CAMERA, START_NS, MadeUp, noise, types_of

UNKNOWN = "and an unknown number skipped"


def read(path: Path):
    """(bag, frames whose pictures were read, in their order)."""
    bag, types = open_bag(path), broken.types()
    contents = read_contents(bag, types, choose_image_topic(bag, None), VOCABULARY)
    wanted = {frame.number for frame in contents.frames}
    shown = {number for number, picture in pictures(bag, types, contents.image, wanted) if picture}
    seen = [frame.time_ns for frame in contents.frames]
    assert seen == sorted(seen)
    return bag, [frame for frame in contents.frames if frame.number in shown], contents


def said(bag) -> str:
    return " | ".join([bag.summary, *bag.warnings])


# -- sqlite


@pytest.mark.slow
@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_killed_recording_s_log_is_read_and_nothing_is_written(tmp_path, bare, read_only):
    folder = broken.killed_database(tmp_path / "walk")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    if read_only:
        folder.chmod(0o555)
    try:
        bag, frames, _ = read(folder / "walk.db3" if bare else folder)
    finally:
        folder.chmod(0o755)
    assert len(frames) == 6 and bag.found == bag.count == 7
    assert "walk.db3-wal is read as well" in said(bag)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_pages_of_a_log_that_were_not_finished_are_named(tmp_path):
    folder = broken.killed_database(tmp_path / "walk")
    log = folder / "walk.db3-wal"
    data = bytearray(log.read_bytes())
    data[-100] ^= 1  # the checksum of the last page
    log.write_bytes(data)
    bag, frames, _ = read(folder)
    assert len(frames) == 5 and "pages in walk.db3-wal are damaged or incomplete" in said(bag)


def test_a_log_that_holds_everything_and_one_without_its_database(tmp_path):
    folder = broken.killed_database(tmp_path / "walk")
    (folder / "other.db3-wal").write_bytes((folder / "walk.db3-wal").read_bytes())
    bag, frames, _ = read(folder)
    assert len(frames) == 6 and "other.db3-wal: it is not read: its database is missing" in said(bag)


def test_an_unfinished_transaction_is_taken_back_and_named(tmp_path):
    folder = broken.unfinished_transaction(tmp_path / "walk")
    before = (folder / "walk.db3").read_bytes()
    bag, frames, _ = read(folder)
    assert len(frames) == 4 and "rolls back an unfinished transaction" in said(bag) and UNKNOWN in bag.summary
    assert (folder / "walk.db3").read_bytes() == before and (folder / "walk.db3-journal").exists()


def test_of_a_damaged_database_what_lies_before_and_behind_is_read(tmp_path):
    bag = MadeUp().say("go")
    for number in range(30):
        bag.frame(noise(number))
    file = bag.save(tmp_path / "walk", "sqlite3") / "walk.db3"
    whole = open_bag(file).count
    data = bytearray(file.read_bytes())
    lost_most = 0
    for page in range(2, len(data) // 4096, 5):
        damaged = bytearray(data)
        damaged[page * 4096 : (page + 1) * 4096] = bytes(4096)
        path = tmp_path / "damaged.db3"
        path.write_bytes(damaged)
        try:
            found = open_bag(path)
        except EvaluationError as error:
            assert "\n" not in str(error)
            continue
        names = [topic.name for topic in found.topics]
        assert sum(1 for _ in found.messages(names)) == found.count
        assert found.count == whole or found.skipped
        lost_most = max(lost_most, whole - found.count)
    assert 0 < lost_most < 15


def test_rows_of_no_topic_and_tables_that_compute_are_named(tmp_path):
    import sqlite3

    file = walk_part(0).save(tmp_path / "walk", "sqlite3") / "walk.db3"
    with sqlite3.connect(file) as database:
        database.execute("INSERT INTO messages(topic_id,timestamp,data) VALUES(99,5,x'00')")
        database.execute("INSERT INTO messages(topic_id,timestamp,data) SELECT id, 'noon', x'00' FROM topics LIMIT 1")
    database.close()
    bag = open_bag(file)
    assert (bag.found, bag.count) == (7, 5)
    assert "1 message skipped: the file does not define their topics" in said(bag)
    assert "1 message skipped: their row has no time" in said(bag)
    with sqlite3.connect(file) as database:
        database.execute("DROP TABLE messages")
        database.execute(
            "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id, timestamp, data AS (zeroblob(900000000)))"
        )
    database.close()
    with pytest.raises(EvaluationError, match="its table messages is not one of rosbag2's"):
        open_bag(file)


# -- splits


@pytest.mark.slow
def test_after_a_crash_with_file_compression_all_splits_are_used(tmp_path):
    files = splits(tmp_path / "walk", 3, CompressionMode.FILE)
    whole = zstd.decompress(files[2].read_bytes())
    files[2].unlink()
    files[2].with_suffix("").write_bytes(whole[: len(whole) * 3 // 4])
    bag, frames, _ = read(tmp_path / "walk")
    assert len(frames) == 12 and "walk_2.mcap: cut off" in said(bag)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".db3.zstd", ".mcap.zstd", ".mcap.zst"])
def test_compressed_splits_need_no_metadata(tmp_path, ending):
    kind = "sqlite3" if "db3" in ending else "mcap"
    (tmp_path / "walk").mkdir()
    for number in range(2):
        made = walk_part(number).save(tmp_path / f"m{number}", kind)
        (file,) = (one for one in made.iterdir() if one.suffix != ".yaml")
        # Two frames of zstd, one behind the other, are one file.
        data = file.read_bytes()
        packed = zstd.compress(data[:1000]) + zstd.compress(data[1000:])
        (tmp_path / "walk" / f"walk_{number}{ending}").write_bytes(packed)
    bag, frames, _ = read(tmp_path / "walk")
    assert len(frames) == 8 and bag.found == bag.count == 10
    assert len(read(tmp_path / "walk" / f"walk_1{ending}")[1]) == 4


@pytest.mark.parametrize("kind", ["mcap", "sqlite3"])
def test_messages_compressed_one_by_one_need_no_metadata(tmp_path, kind):
    folder = walk_part(0).save(tmp_path / "walk", kind, compression=CompressionMode.MESSAGE)
    (folder / "metadata.yaml").unlink()
    bag, frames, contents = read(folder)
    assert len(frames) == 4 and len(contents.instructions) == 1 and bag.found == bag.count == 5


def test_splits_that_overlap_in_time_are_merged(tmp_path):
    (tmp_path / "walk").mkdir()
    mcap(tmp_path / "walk" / "walk_0.mcap", times(12)[::2])
    mcap(tmp_path / "walk" / "walk_1.mcap", times(12)[1::2])
    made = walk_part(0).save(tmp_path / "made", "sqlite3")
    shutil.copy(made / "made.db3", tmp_path / "walk" / "walk_2.db3")
    bag, frames, _ = read(tmp_path / "walk")
    assert len(frames) == 16 and bag.found == bag.count == 17


def test_copies_are_used_once_and_named(tmp_path):
    (file,) = splits(tmp_path / "walk", 1)
    shutil.copy(file, tmp_path / "walk" / "walk_0 (copy).mcap")
    (tmp_path / "walk" / "walk_0.mcap.zstd").write_bytes(zstd.compress(file.read_bytes()))
    bag, frames, _ = read(tmp_path / "walk")
    assert len(frames) == 4 and (bag.found, bag.count) == (15, 5) and said(bag).count("5 messages skipped") == 2


@pytest.mark.slow
@pytest.mark.parametrize("cut", [20, 60, -60])
def test_a_split_killed_while_it_was_compressed_is_read_uncompressed(tmp_path, cut):
    file, _ = splits(tmp_path / "walk", 2)
    (tmp_path / "walk" / "walk_0.mcap.zstd").write_bytes(zstd.compress(file.read_bytes())[:cut])
    bag, frames, _ = read(tmp_path / "walk")
    assert len(frames) == 8 and bag.count == 10 and "walk_0.mcap.zstd: " in said(bag)


def test_empty_and_unknown_files_are_named(tmp_path):
    splits(tmp_path / "walk", 1)
    (tmp_path / "walk" / "walk_1.mcap").write_bytes(b"")
    (tmp_path / "walk" / "walk_2.mcap.gz").write_bytes(b"x")
    (tmp_path / "walk" / "walk_3.bag").write_bytes(b"x")
    os.mkfifo(tmp_path / "walk" / "walk_4.mcap")
    bag, frames, _ = read(tmp_path / "walk")
    words = said(bag)
    assert len(frames) == 4 and UNKNOWN in bag.summary
    for name in ("walk_1.mcap: ", "walk_2.mcap.gz: it is not read", "walk_3.bag: ", "walk_4.mcap: it is not a regular"):
        assert name in words


def test_a_topic_of_two_types_is_read_as_the_one_of_most_messages(tmp_path):
    (tmp_path / "walk").mkdir()
    mcap(tmp_path / "walk" / "walk_0.mcap", times(6))
    mcap(tmp_path / "walk" / "walk_1.mcap", times(8)[6:], kind="std_msgs/msg/String")
    bag, frames, _ = read(tmp_path / "walk")
    assert len(frames) == 6 and (bag.found, bag.count) == (8, 6) and "and of type std_msgs/msg/String here" in said(bag)


@pytest.mark.slow
def test_one_split_alone_says_that_there_are_others(tmp_path):
    first, _ = splits(tmp_path / "walk", 2)
    (tmp_path / "walk" / "WALK_2.MCAP").write_bytes(walk_part(2).save(tmp_path / "o").joinpath("o.mcap").read_bytes())
    bag, frames, _ = read(first)
    assert len(frames) == 4 and "walk_0.mcap is one of 2 splits: give its folder" in said(bag)
    assert len(read(tmp_path / "walk")[1]) == 12


def test_what_a_killed_recorder_of_ours_leaves_is_found_in_its_folder(tmp_path):
    walk_part(0).save(tmp_path / "walk.partial" / "walk")
    assert len(read(tmp_path / "walk.partial")[1]) == 4


# -- metadata.yaml


def with_metadata(tmp_path: Path, change) -> Path:
    folder = walk_part(0).save(tmp_path / "walk")
    file = folder / "metadata.yaml"
    file.write_text(change(file.read_text()))
    return folder


def test_files_that_metadata_names_and_that_are_missing_are_counted(tmp_path):
    folder = with_metadata(
        tmp_path,
        lambda text: text.replace("  - walk.mcap\n", "  - walk.mcap\n  - walk_1.mcap\n", 1)
        .replace("\n  message_count: 5\n", "\n  message_count: 12\n", 1),
    )
    bag, frames, _ = read(folder)
    assert len(frames) == 4 and (bag.found, bag.count) == (12, 5)
    assert "walk_1.mcap: 7 messages skipped: the file is missing" in said(bag)


@pytest.mark.slow
def test_files_that_metadata_does_not_name_are_read_and_named(tmp_path):
    folder = walk_part(0).save(tmp_path / "walk")
    other = walk_part(1).save(tmp_path / "other")
    shutil.copy(other / "other.mcap", folder / "walk_1.mcap")
    bag, frames, _ = read(folder)
    assert len(frames) == 8 and "walk_1.mcap: metadata.yaml does not list it" in said(bag)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1]\nrosbag2_bagfile_information: {relative_file_paths: *a}\n",
        "rosbag2_bagfile_information: [\n",
        "rosbag2_bagfile_information: {relative_file_paths: 5}\n",
        "rosbag2_bagfile_information: !!python/object/apply:os.system [exit]\n",
        "- 1\n",
        "",
        "[" * 100_000,
        "- " * 100_000,
        "? " * 100_000,
    ],
)
def test_metadata_that_cannot_be_used_is_named_and_the_files_are_read(tmp_path, text):
    bag, frames, _ = read(with_metadata(tmp_path, lambda _: text))
    assert len(frames) == 4 and "metadata.yaml cannot be read" in bag.warnings[0]


# -- mcap


@pytest.mark.parametrize("kind", ["sensor_msgs/CompressedImage", "sensor_msgs::msg::dds_::CompressedImage_"])
def test_types_are_known_by_the_names_of_other_tools(tmp_path, kind):
    assert len(read(mcap(tmp_path / "walk.mcap", times(), kind=kind, profile=""))[1]) == 12


def test_messages_that_are_no_cdr_are_counted(tmp_path):
    with pytest.raises(EvaluationError, match="12 messages skipped: they are encoded as 'ros1', not as CDR"):
        open_bag(mcap(tmp_path / "walk.mcap", times(), encoding="ros1"))


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("how", ["checksum", "compression", "zeros"])
def test_messages_of_a_damaged_chunk_are_counted_and_the_others_used(tmp_path, how, number):
    kind = CompressionType.NONE if how == "checksum" else CompressionType.ZSTD
    path = mcap(tmp_path / "walk.mcap", times(), compression=kind)
    data = bytearray(path.read_bytes())
    begin, length = broken.chunk_places(bytes(data))[number]
    if how == "checksum":
        data[begin + length - 30] ^= 1
    elif how == "compression":
        data[begin + 60 : begin + length] = os.urandom(length - 60)
    else:  # the record's head, too: what follows is found by the index
        data[begin : begin + length] = bytes(length)
    path.write_bytes(data)
    bag, frames, _ = read(path)
    assert len(frames) == 9 and (bag.found, bag.count) == (12, 9) and bag.skipped


def test_behind_a_hole_in_a_cut_off_file_the_next_chunk_is_found(tmp_path):
    path = mcap(tmp_path / "walk.mcap", times(30))
    data = bytearray(path.read_bytes())
    places = broken.chunk_places(bytes(data))
    begin, length = places[3]
    data[begin : begin + length] = bytes(length)
    path.write_bytes(data[: sum(places[-1])])  # without the index
    bag, frames, _ = read(path)
    assert len(frames) == 27 and "bytes in 1 place are damaged" in said(bag) and UNKNOWN in bag.summary


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD])
def test_cut_anywhere_a_file_gives_what_was_whole_and_says_that_it_is_cut(tmp_path, compression):
    path = mcap(tmp_path / "walk.mcap", times(20), compression=compression)
    data = path.read_bytes()
    counts = []
    for size in range(700, len(data), 331):
        path.write_bytes(data[:size])
        try:
            bag, frames, _ = read(path)
        except EvaluationError as error:
            assert "cut off" in str(error)
            continue
        counts.append(len(frames))
        assert bag.count == len(frames) and (bag.skipped or len(frames) == 20)
    assert counts == sorted(counts) and counts[-1] == 20 and counts[0] < 5


def test_times_that_go_back_are_put_in_order(tmp_path):
    shuffled = times(30)
    random.Random(0).shuffle(shuffled)
    assert len(read(mcap(tmp_path / "walk.mcap", shuffled))[1]) == 30
    path = tmp_path / "plain.mcap"
    path.write_bytes(opening() + b"".join(message(at, frame_bytes(at)) for at in shuffled))
    assert len(read(path)[1]) == 30


def test_a_channel_defined_in_a_lost_place_is_counted(tmp_path):
    path = tmp_path / "walk.mcap"
    path.write_bytes(opening() + message(START_NS, frame_bytes(START_NS)) + message(START_NS, b"", channel=7))
    bag, frames, _ = read(path)
    assert len(frames) == 1 and "1 message skipped: the file does not define their topics" in said(bag)


def damaged(data: bytes, draw: random.Random) -> bytes:
    broken_data = bytearray(data)
    for _ in range(draw.choice((1, 1, 3, 10))):
        place = draw.randrange(len(broken_data))
        how = draw.random()
        if how < 0.5:
            broken_data[place] = draw.randrange(256)
        elif how < 0.8:
            broken_data[place : place + draw.randrange(1, 40)] = draw.randbytes(draw.randrange(1, 40))
        else:
            del broken_data[place : place + draw.randrange(1, 200)]
    return bytes(broken_data)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["plain", "zstd", "lz4", "one chunk", "one zstd chunk", "sqlite"])
def test_whatever_is_damaged_no_message_is_lost_without_a_word(tmp_path, how):
    made = {
        "plain": lambda: mcap(tmp_path / "walk.mcap", times(), compression=CompressionType.NONE),
        "zstd": lambda: mcap(tmp_path / "walk.mcap", times()),
        "lz4": lambda: mcap(tmp_path / "walk.mcap", times(), compression=CompressionType.LZ4),
        "one chunk": lambda: walk_part(0, 12).save(tmp_path / "walk") / "walk.mcap",
        "one zstd chunk": lambda: walk_part(0, 12).save(tmp_path / "walk", compression=CompressionMode.STORAGE)
        / "walk.mcap",
        "sqlite": lambda: walk_part(0, 12).save(tmp_path / "walk", "sqlite3") / "walk.db3",
    }[how]()
    data, whole, draw = made.read_bytes(), open_bag(made).count, random.Random(how)
    path = tmp_path / f"damaged{made.suffix}"
    read_some = 0
    for _ in range(60):
        path.write_bytes(damaged(data, draw))
        try:
            bag = open_bag(path)
        except EvaluationError as error:
            assert "\n" not in str(error)
            continue
        assert sum(1 for _ in bag.messages([topic.name for topic in bag.topics])) == bag.count <= whole
        assert bag.count == whole or bag.skipped
        read_some += 1
    assert read_some > 10


# -- bounds


def bombs() -> dict[str, bytes]:
    begin = opening() + message(START_NS, frame_bytes(START_NS))
    zeros = chunk(bytes(200 << 20))
    liar = chunk(bytes(200 << 20), declared=100)
    many = chunk(message(START_NS, b"") * 300_000)
    inner = zstd.compress(bytes(200 << 20))
    # An index whose every entry is the same chunk.
    big = begin + chunk(message(START_NS, bytes(40 << 20)))
    start, length = len(begin), len(big) - len(begin)
    entry = struct.pack("<QQQQ", START_NS, START_NS, start, length) + struct.pack("<I", 0) + struct.pack("<Q", 0)
    entry += broken.text("zstd") + struct.pack("<QQ", length - 53, (40 << 20) + 31)
    index = broken.record(15, bytes(4)), broken.record(8, entry) * 200
    footer = broken.record(2, struct.pack("<QQI", len(big) + len(index[0]), 0, 0)) + broken.MAGIC
    return {
        "one chunk": begin + zeros,
        "many chunks": begin + zeros * 4,
        "a wrong size": begin + liar,
        "many messages": begin + many,
        "one message": begin + message(START_NS, inner),
        "an index of one chunk": big + b"".join(index) + footer,
        "a huge record": begin + struct.pack("<BQ", 6, 2**62),
        "a huge count": begin + broken.record(11, struct.pack("<QHIIIIQQI", 2**63, 1, 1, 0, 0, 1, 0, 0, 0)),
    }


BOMBS = bombs()


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_cannot_unpack_to_much(tmp_path, name, monkeypatch):
    monkeypatch.setattr(storage, "SPARE_BYTES", 8 << 20)
    taken = []
    whole = storage.unpack

    def unpack(data, compression, most):
        content, finished = whole(data, compression, most)
        taken.append(len(content))
        return content, finished

    for module in ("storage", "mcap_storage"):
        monkeypatch.setattr(f"specnav.bags.{module}.unpack", unpack)
    path = tmp_path / "bomb.mcap"
    path.write_bytes(BOMBS[name])
    bag = open_bag(path)
    seen = sum(1 for _ in bag.messages([CAMERA]))
    assert seen == bag.count <= path.stat().st_size + 1000
    assert max(taken, default=0) <= 1000 * path.stat().st_size + (8 << 20)
    assert bag.skipped or name == "an index of one chunk"


def test_a_compressed_file_cannot_unpack_to_much(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "SPARE_BYTES", 1 << 20)
    path = tmp_path / "walk.mcap.zstd"
    path.write_bytes(zstd.compress(opening() + message(START_NS, frame_bytes(START_NS)) + bytes(64 << 20)))
    bag, frames, _ = read(path)
    assert len(frames) == 1 and "unpacks to more than is allowed for a file of this size" in said(bag)


def test_runs_that_overlap_are_merged_within_a_window_and_none_is_lost():
    def run(number: int) -> MessageRun:
        content = [BagMessage("/x", at, b"") for at in (0, number, 50 + number)]
        return MessageRun(0, 10, lambda: iter(content))

    runs = [run(number) for number in range(1, 9)]
    ordered = [one.time_ns for one in in_order(runs)]
    assert ordered == sorted(ordered) and len(ordered) == 24
    assert len(list(in_order(runs, window=20))) == 24


def test_bare_messages_behind_a_chunk_that_used_everything_up_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "SPARE_BYTES", 0)
    monkeypatch.setattr(storage, "EXPANSION", 2)
    first = frame_bytes(START_NS)
    path = tmp_path / "walk.mcap"
    bare = message(START_NS + 1, first) * 3
    rest = opening() + chunk(b"") + bare
    # The chunk takes all but 100 bytes of what twice the file's size allows.
    content = message(START_NS, first) + message(START_NS, bytes(2 * len(rest)))
    for _ in range(3):
        size = len(opening() + chunk(content) + bare)
        content = message(START_NS, first) + message(START_NS, bytes(2 * size - len(message(START_NS, first)) - 131))
    path.write_bytes(opening() + chunk(content) + bare)
    bag = open_bag(path)
    assert bag.count == 2 and "they are more, or unpack to more, than a file of this size may hold" in said(bag)


# -- clocks


def test_pauses_are_shortened_both_ways():
    timeline = BagTimeline.from_seconds({0, 1, 1_700_000_000, 1_700_000_001, 1_700_000_030})
    second = 10**9
    assert timeline.played(second) == second
    assert timeline.played(1_700_000_000 * second) == (2 + MAX_PAUSE_S) * second
    assert timeline.played(1_700_000_030 * second) == (4 + 2 * MAX_PAUSE_S) * second
    for time_ns in (0, second, 1_700_000_000 * second, 1_700_000_030 * second + 5):
        assert timeline.recorded(timeline.played(time_ns)) == time_ns
    assert "2 pauses of up to 53.9 years" in timeline.notes[0] and timeline.jumps
    assert not BagTimeline.from_seconds({5, 6, 16}).pauses and not BagTimeline.from_seconds(()).notes
    pace = PlaybackPace(0, 100.0, 2.0, timeline)
    assert pace.due(1_700_000_000 * second) == pytest.approx(100 + (2 + MAX_PAUSE_S) / 2)
    assert pace.bag_time_ns(pace.due(1_700_000_000 * second)) == pytest.approx(1_700_000_000 * second, abs=1000)


@pytest.mark.parametrize("odd", [0, 2**63, 2**64 - 1])
def test_a_time_of_another_age_is_named_and_plays_within_seconds(tmp_path, odd):
    recorded = times(6)
    recorded[0] = odd
    bag, frames, _ = read(mcap(tmp_path / "walk.mcap", recorded))
    played = [bag.timeline.played(frame.time_ns) for frame in frames]
    assert len(frames) == 6 and max(played) - min(played) < (MAX_PAUSE_S + 4) * 10**9
    assert "in the recording, each played as 10 s at most" in said(bag)


def test_frames_with_the_stamp_of_another_are_told_apart(tmp_path):
    bag = MadeUp().say("go")
    for at in (0, 0, START_NS + 5, START_NS + 5, None):
        bag.frame(stamp_ns=at)
    _, _, contents = read(bag.save(tmp_path / "walk"))
    stamps = [frame.stamp_ns for frame in contents.frames]
    assert len(set(stamps)) == 5 and stamps[2] == START_NS + 5
    assert "3 frames have no header stamp or a repeated one" in contents.notes[0]


RULE = "=" * 80 + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("".join(f"int8 f{number}\n" for number in range(5000)), "ros2msg"),
        ("x/Foo[2000000000] data\n" + RULE + "MSG: x/Foo\nint32 A=1\n", "ros2msg"),
        ("x/Bar[2000000000] data\n" + RULE + "MSG: x/Bar\nx/Foo[9] b\n" + RULE + "MSG: x/Foo\nint32 A=1\n", "ros2msg"),
        ("std_msgs/String[] data\n", "ros2msg"),
        ("std_msgs/String data\n", "ros2msg"),
        ("module a { " * 5000 + "};" * 5000, "ros2idl"),
        ("#" + "x" * 10**7, "ros2msg"),
    ],
)
def test_definitions_that_take_endlessly_are_as_good_as_none(text, encoding):
    types = types_of()
    types.learn(BagTopic("/x", "std_msgs/msg/String", 1, text, encoding))
    try:
        assert types.decode("std_msgs/msg/String", broken.words("go")).data in ("go", [])
    except EvaluationError as error:
        assert "\n" not in str(error)


# -- who else reads


def test_damaged_texts_are_named_by_topic(tmp_path):
    path = tmp_path / "walk.mcap"
    instruction = struct.pack("<HH", 2, 2) + broken.text("/instruction") + broken.text("cdr") + broken.text("")
    schema = struct.pack("<H", 2) + b"".join(map(broken.text, ("std_msgs/msg/String", "ros2msg", "string data")))
    begin = opening() + broken.record(3, schema) + broken.record(4, instruction)
    body = message(START_NS, broken.words(), 2) + message(START_NS, b"\0\1\0\0\xff\xff\xff\xff", 2)
    path.write_bytes(begin + body + message(START_NS, frame_bytes(START_NS)))
    _, _, contents = read(path)
    assert contents.skipped[0].count == 1 and "/instruction: 1 message skipped" in contents.notes[0]


def test_splits_without_metadata_are_one_walk_to_look_back_on_and_other_files_are_not(tmp_path):
    splits(tmp_path / "walk", 2)
    assert find_bag(tmp_path / "walk") == tmp_path / "walk"
    shutil.copy(tmp_path / "walk" / "walk_0.mcap", tmp_path / "walk" / "blackbox-1.mcap")
    with pytest.raises(EvaluationError, match="3 of them: name one"):
        find_bag(tmp_path / "walk")


@pytest.mark.parametrize("kind", ["mcap", "sqlite3"])
def test_what_publishers_offered_is_known_without_metadata(tmp_path, kind):
    folder = MadeUp().say("go").save(tmp_path / "walk", kind, offered=[broken.LATCHED])
    (folder / "metadata.yaml").unlink()
    (text,) = open_bag(folder).offered("/instruction")
    assert "durability: transient_local" in text and open_bag(folder).offered("/nowhere") == []


def test_playing_names_what_it_leaves_out(tmp_path):
    bag = open_bag(MadeUp().say("go").say("x", "/chatter").save(tmp_path / "walk"))
    assert "/chatter (std_msgs/msg/String, 1 message)" in left_out(bag, choose(bag, [], {}, False))
    assert left_out(bag, choose(bag, ["/chatter", "/instruction"], {}, False)) == ""
