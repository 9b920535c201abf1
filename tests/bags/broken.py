"""Recordings as crashes, other tools and wrong clocks leave them; each function makes one in a folder of its own."""

from __future__ import annotations

import shutil
import sqlite3
import struct
import zlib
from functools import cache
from pathlib import Path

from backports import zstd
from mcap.writer import CompressionType, Writer
from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import CompressionMode

from specnav.bags.contents import COMPRESSED, STRING
from tests.bags.made_up import CAMERA, START_NS, STEP_NS, MadeUp, encoded, stamp, types_of

_NEVER = QosTime(9223372036, 854775807)
LATCHED = Qos(
    QosHistory.KEEP_LAST, 1, QosReliability.RELIABLE, QosDurability.TRANSIENT_LOCAL, _NEVER, _NEVER,
    QosLiveliness.AUTOMATIC, _NEVER, False,
)  # fmt: skip
MAGIC = b"\x89MCAP0\r\n"


types = cache(types_of)


@cache
def frame_bytes(at_ns: int, shade: int = 3) -> bytes:
    return types().encode(
        COMPRESSED, {"header": {"stamp": stamp(at_ns)}, "format": "jpeg", "data": list(encoded(shade))}
    )


@cache
def words(text: str = "go") -> bytes:
    return types().encode(STRING, {"data": text})


def walk_part(number: int, frames: int = 4) -> MadeUp:
    """A split of a recording: each holds its own seconds."""
    bag = MadeUp(now_ns=START_NS + number * 10**9).say("go")
    for _ in range(frames):
        bag.frame()
    return bag


def splits(folder: Path, count: int, mode: CompressionMode = CompressionMode.NONE, frames: int = 4) -> list[Path]:
    """Splits without metadata.yaml, as many as are wanted."""
    folder.mkdir()
    found = []
    for number in range(count):
        made = walk_part(number, frames).save(folder.parent / f"made_{number}", compression=mode)
        (file,) = (path for path in made.iterdir() if path.name != "metadata.yaml")
        target = folder / file.name.replace(f"made_{number}", f"walk_{number}")
        shutil.copy(file, target)
        found.append(target)
    return found


def killed_database(folder: Path, in_wal: int = 4, whole: int = 2) -> Path:
    """A sqlite bag whose recording was killed: `whole` frames and the instruction in the file, the others in `-wal`."""
    bag = MadeUp().say("go")
    for _ in range(whole):
        bag.frame()
    made = bag.save(folder.parent / "made", "sqlite3")
    database = sqlite3.connect(made / "made.db3")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA wal_autocheckpoint=0")
    (camera,) = database.execute("SELECT id FROM topics WHERE name=?", (CAMERA,)).fetchone()
    for number in range(in_wal):
        at = bag.now_ns + (number + 1) * STEP_NS
        row = (camera, at, frame_bytes(at))
        database.execute("INSERT INTO messages(topic_id,timestamp,data) VALUES(?,?,?)", row)
        database.commit()
    folder.mkdir()
    for name in ("made.db3", "made.db3-wal"):
        shutil.copy(made / name, folder / name.replace("made", "walk"))
    database.close()
    return folder


def unfinished_transaction(folder: Path) -> Path:
    """A sqlite bag killed while a transaction with a rollback journal was being written."""
    bag = MadeUp().say("go")
    for _ in range(4):
        bag.frame()
    made = bag.save(folder.parent / "made", "sqlite3")
    database = sqlite3.connect(made / "made.db3", isolation_level=None)
    database.execute("PRAGMA journal_mode=DELETE")
    database.execute("PRAGMA cache_size=1")
    database.execute("BEGIN")
    for number in range(200):
        at = bag.now_ns + (number + 1) * STEP_NS
        row = (1, at, frame_bytes(at))
        database.execute("INSERT INTO messages(topic_id,timestamp,data) VALUES(?,?,?)", row)
    folder.mkdir()
    for name in ("made.db3", "made.db3-journal"):
        shutil.copy(made / name, folder / name.replace("made", "walk"))
    database.execute("ROLLBACK")
    database.close()
    return folder


def mcap(
    path: Path,
    times_ns: list[int],
    kind: str = COMPRESSED,
    encoding: str = "cdr",
    compression: CompressionType = CompressionType.ZSTD,
    chunk_size: int = 2000,
    topic: str = CAMERA,
    profile: str = "ros2",
) -> Path:
    """Frames with these log times, written with the library of mcap's authors; their stamps count from START_NS."""
    with path.open("wb") as stream:
        writer = Writer(stream, chunk_size=chunk_size, compression=compression)
        writer.start(profile)
        text = types().store.generate_msgdef(COMPRESSED)[0]
        channel = writer.register_channel(topic, encoding, writer.register_schema(kind, "ros2msg", text.encode()))
        for number, at in enumerate(times_ns):
            writer.add_message(channel, at, frame_bytes(START_NS + number * STEP_NS, number * 20), at)
        writer.finish()
    return path


def times(count: int = 12) -> list[int]:
    return [START_NS + number * STEP_NS for number in range(count)]


def record(kind: int, body: bytes) -> bytes:
    return struct.pack("<BQ", kind, len(body)) + body


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode()


def chunk(content: bytes, compression: str = "zstd", declared: int | None = None, crc: int | None = None) -> bytes:
    packed = zstd.compress(content) if compression == "zstd" else content
    size = len(content) if declared is None else declared
    crc = zlib.crc32(content) if crc is None else crc
    head = struct.pack("<QQQI", START_NS, START_NS, size, crc) + text(compression)
    return record(6, head + struct.pack("<Q", len(packed)) + packed)


def opening() -> bytes:
    """The beginning of an mcap file: header, a schema and a channel of frames."""
    schema = struct.pack("<H", 1) + text(COMPRESSED) + text("ros2msg") + text("")
    channel = struct.pack("<HH", 1, 1) + text(CAMERA) + text("cdr") + text("")
    return MAGIC + record(1, text("ros2") + text("test")) + record(3, schema) + record(4, channel)


def message(at_ns: int, data: bytes, channel: int = 1) -> bytes:
    return record(5, struct.pack("<HIQQ", channel, 0, at_ns, at_ns) + data)


def chunk_places(data: bytes) -> list[tuple[int, int]]:
    """(offset, length) of every chunk of an mcap file."""
    place, found = len(MAGIC), []
    while place + 9 <= len(data):
        kind, size = struct.unpack_from("<BQ", data, place)
        if kind == 6:
            found.append((place, 9 + size))
        if kind == 2:
            break
        place += 9 + size
    return found
