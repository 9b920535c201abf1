"""Opening a bag: a folder with or without metadata.yaml, or a bare `.mcap` or `.db3` file, whole or not.

`rosbags` reads what is in order; an mcap file that it refuses is read record by record (`salvage`). What had to be
left out is said in `warnings`, one line each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rosbags.interfaces import MessageDefinitionFormat
from rosbags.rosbag2 import Reader, ReaderError

from evaluation.bags.salvage import Salvage
from evaluation.errors import EvaluationError, one_line

SUFFIXES = (".mcap", ".db3")
METADATA = "metadata.yaml"
# Damaged bytes break rosbags' reading anywhere, with whatever Python raises there (seen: OverflowError, KeyError).
_BROKEN = (Exception,)
_DEFINITIONS = {MessageDefinitionFormat.MSG: "ros2msg", MessageDefinitionFormat.IDL: "ros2idl"}


@dataclass(frozen=True)
class Topic:
    """A topic of a bag; definition: of its type, as the bag holds it ("": it holds none), in ros2msg or ros2idl."""

    name: str
    kind: str
    count: int
    definition: str = ""
    encoding: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}, {self.count} message{'' if self.count == 1 else 's'})"


@dataclass(frozen=True)
class Message:
    """One message: its topic's name, when it was recorded (ns), and its bytes (CDR)."""

    topic: str
    time_ns: int
    data: bytes


@dataclass(frozen=True)
class Part:
    """A file or folder to read; scan: record by record (a damaged mcap file), else with its index."""

    path: Path
    scan: bool = False


@dataclass
class Bag:
    """An opened bag. distro: the ROS release that wrote it, where it says so."""

    path: Path
    topics: list[Topic]
    parts: list[Part]
    distro: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Messages in all."""
        return sum(topic.count for topic in self.topics)

    def topic(self, name: str) -> Topic | None:
        """A topic by its name, with or without the leading slash."""
        wanted = f"/{name.lstrip('/')}"
        return next((topic for topic in self.topics if f"/{topic.name.lstrip('/')}" == wanted), None)

    def messages(self, names: Sequence[str]) -> Iterator[Message]:
        """Messages of some topics; in the order of their time where the bag has an index, else in the file's order.

        Where a file breaks off, its messages end; that was said when the bag was opened.
        """
        for part in self.parts:
            yield from (_scanned if part.scan else _indexed)(part.path, set(names))


def open_bag(path: Path) -> Bag:
    """Open a bag. Raises EvaluationError with one line when there is none, or nothing in it can be read."""
    if not path.exists():
        raise EvaluationError(f"no bag at {path}; give a rosbag2 folder or an .mcap or .db3 file")
    if path.is_dir() and not (path / METADATA).exists() and not _files_in(path):
        raise EvaluationError(f"{path} holds no .mcap and no .db3 file; give a rosbag2 folder")
    if path.is_file() and path.suffix not in SUFFIXES:
        raise EvaluationError(f"{path} is neither .mcap nor .db3; give a rosbag2 folder or such a file")
    if path.is_file() or (path / METADATA).exists():
        try:
            bag = _read_index(path)
        except _BROKEN as error:
            bag = _open_files(path, _one_line(error))
    else:
        bag = _open_files(path, f"{METADATA} is missing")
    if not bag.count:
        raise EvaluationError(f"{path} holds no messages{_because(bag.warnings)}")
    return bag


def _files_in(folder: Path) -> list[Path]:
    return sorted((p for p in folder.iterdir() if p.suffix in SUFFIXES), key=_split_number)


def _split_number(path: Path) -> tuple[int, str]:
    """NAME_10.mcap comes after NAME_9.mcap."""
    tail = path.stem.rpartition("_")[2]
    return (int(tail) if tail.isdecimal() else -1, path.name)


def _read_index(path: Path) -> Bag:
    """With rosbags, which reads metadata and indexes; every message is looked at once, so that a break is found now."""
    with Reader(path) as reader:
        topics = _topics(reader.connections)
        distro = getattr(reader.storage.metadata, "ros_distro", "") or ""
        readable = sum(1 for _ in reader.messages())
        said = reader.message_count
    bag = Bag(path, topics, [Part(path)], distro=distro)
    if readable < said:
        raise ReaderError(f"only {readable} of {said} messages can be read")
    return bag


def _topics(connections: Sequence[Any]) -> list[Topic]:
    found: dict[str, Topic] = {}
    for one in connections:
        definition = one.msgdef
        encoding = _DEFINITIONS.get(definition.format, "")
        before = found.get(one.topic)
        count = one.msgcount + (before.count if before else 0)
        found[one.topic] = Topic(one.topic, one.msgtype, count, definition.data if encoding else "", encoding)
    return sorted(found.values(), key=lambda topic: topic.name)


def _open_files(path: Path, why: str) -> Bag:
    """File by file, whatever each still holds."""
    bag = Bag(path, [], [])
    if path.is_dir():
        bag.warnings.append(f"{path.name}: {why}; its files are read one by one")
    merged: dict[str, Topic] = {}
    for file in _files_in(path) if path.is_dir() else [path]:
        for topic in _look_into(file, bag):
            before = merged.get(topic.name)
            count = topic.count + (before.count if before else 0)
            merged[topic.name] = replace(before or topic, count=count)
    bag.topics = sorted(merged.values(), key=lambda topic: topic.name)
    return bag


def _look_into(file: Path, bag: Bag) -> list[Topic]:
    """The topics of one file; notes in the bag how to read it, and what is lost."""
    try:
        found = _read_index(file)
        bag.parts += found.parts
        return found.topics
    except _BROKEN as error:
        why = _one_line(error)
    if file.suffix == ".db3":
        topics, complaint = _readable_rows(file)
        count = sum(topic.count for topic in topics)
        rest = f"the {count} messages before that are used" if count else "nothing is read"
        bag.warnings.append(f"{file.name}: {complaint or why}; {rest}")
        bag.parts += [Part(file)] if count else []
        return topics
    salvage = Salvage(file)
    try:
        for _ in salvage.messages():
            pass
    except (ValueError, OSError) as error:
        bag.warnings.append(f"{file.name}: {_one_line(error)}; nothing is read")
        return []
    bag.warnings.append(_what_was_saved(salvage, why))
    bag.parts.append(Part(file, scan=True))
    found_topics: dict[str, Topic] = {}
    for number, channel in salvage.channels.items():
        schema = salvage.schemas.get(channel.schema)
        if schema is not None and channel.encoding == "cdr":
            before = found_topics.get(channel.topic)
            count = salvage.counts.get(number, 0) + (before.count if before else 0)
            found_topics[channel.topic] = Topic(
                channel.topic, schema.name, count, schema.text, schema.encoding
            )
    return list(found_topics.values())


def _what_was_saved(salvage: Salvage, why: str) -> str:
    count = sum(salvage.counts.values())
    share = 100 * salvage.good_bytes / max(salvage.total_bytes, 1)
    if salvage.whole:
        state = why
    elif salvage.in_part:
        state = "cut off within a chunk"
    else:
        state = "cut off: it has no index"
    lost = f", {salvage.lost_chunks} chunks are damaged" if salvage.lost_chunks else ""
    return f"{salvage.path.name}: {state}{lost}; {count} messages read, {share:.1f} % of the file"


def _readable_rows(file: Path) -> tuple[list[Topic], str]:
    """Topics of a damaged database with the number of messages up to the damage, and what it says of it."""
    try:
        with Reader(file) as reader:
            topics = _topics(reader.connections)
            counts = dict.fromkeys((topic.name for topic in topics), 0)
            complaint = ""
            try:
                for connection, _, _ in reader.messages():
                    counts[connection.topic] += 1
            except _BROKEN as error:
                complaint = _one_line(error)
            return [
                Topic(t.name, t.kind, counts[t.name], t.definition, t.encoding) for t in topics
            ], complaint
    except _BROKEN as error:
        return [], _one_line(error)


def _indexed(path: Path, wanted: set[str]) -> Iterator[Message]:
    with contextlib.suppress(*_BROKEN), Reader(path) as reader:
        connections = [one for one in reader.connections if one.topic in wanted]
        if connections:
            for connection, time_ns, data in reader.messages(connections):
                yield Message(connection.topic, time_ns, bytes(data))


def _scanned(file: Path, wanted: set[str]) -> Iterator[Message]:
    for channel, time_ns, data in Salvage(file).messages():
        if channel.topic in wanted and channel.encoding == "cdr":
            yield Message(channel.topic, time_ns, data)


def _one_line(error: Exception) -> str:
    return one_line(error).rstrip(".")


def _because(warnings: Sequence[str]) -> str:
    return f": {warnings[-1]}" if warnings else ""
