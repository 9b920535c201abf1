# SPDX-License-Identifier: Apache-2.0
"""Opens bags: a folder with or without metadata.yaml, or a single storage file, whether complete or damaged.

Every file is scanned once. `summary` and `warnings` report what was found, what is used, and what was skipped and why:
no message is dropped silently.
"""

from __future__ import annotations

import re
import shutil
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp

from specnav.bags.mcap_storage import McapStorage
from specnav.bags.metadata import METADATA, Metadata, read_metadata
from specnav.bags.sqlite_storage import SqliteStorage
from specnav.bags.storage import (
    BagMessage,
    BagTopic,
    BrokenFile,
    Budget,
    Skipped,
    Storage,
    in_order,
    zstd,
)
from specnav.bags.timeline import BagTimeline
from specnav.results.errors import EvaluationError, one_line

_STORAGE = re.compile(r"(.+\.(mcap|db3))(\.zstd|\.zst)?", re.IGNORECASE)
_SPLIT_NUMBER = re.compile(r"_\d+$")
_RELATED = re.compile(r".+\.(mcap|db3)\..+|.+\.bag", re.DOTALL | re.IGNORECASE)
_BLOCK_BYTES = 1 << 20
MOST_NAMED = 100  # missing files that are named


@dataclass
class Bag:
    """An opened bag. distro: the ROS release that wrote it, if known; notes: further remarks about it."""

    path: Path
    topics: list[BagTopic]
    storages: list[Storage]
    distro: str = ""
    notes: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of messages that are used."""
        return sum(topic.count for topic in self.topics)

    @property
    def found(self) -> int:
        """Number of messages used and skipped, as far as known."""
        return self.count + sum(one.count or 0 for one in self.skipped)

    @property
    def warnings(self) -> list[str]:
        """Caveats for readers of the figures, one per line."""
        jumps = self.timeline.notes if self.timeline.jumps else []
        return [*self.notes, *map(str, self.skipped), *jumps]

    @property
    def summary(self) -> str:
        """Messages found, used and skipped, in one line."""
        unknown = any(one.count is None for one in self.skipped)
        more = " and an unknown number" if unknown else ""
        skipped = f"{self.found - self.count}{more} skipped"
        return f"{self.path.name}: {self.found} messages found, {self.count} used, {skipped}"

    @cached_property
    def timeline(self) -> BagTimeline:
        """The bag's time without long pauses."""
        return BagTimeline.from_seconds(set().union(*(one.tally.seconds for one in self.storages)))

    def offered(self, topic: str) -> list[str]:
        """The QoS profiles offered by the publishers of a topic, as unchecked YAML texts."""
        return [text for one in self.storages for text in one.tally.offered.get(topic, ())]

    def topic(self, name: str) -> BagTopic | None:
        """A topic by its name, with or without the leading slash."""
        wanted = f"/{name.lstrip('/')}"
        return next((topic for topic in self.topics if f"/{topic.name.lstrip('/')}" == wanted), None)

    def messages(self, names: Sequence[str]) -> Iterator[BagMessage]:
        """Messages of the named topics from all files, in order of recording.

        Raises EvaluationError if a file has become unreadable since the bag was opened.
        """
        wanted = {topic.name: topic.kind for topic in self.topics if topic.name in set(names)}
        try:
            yield from in_order([run for one in self.storages for run in one.runs(wanted)])
        except EvaluationError:
            raise
        except Exception as error:
            raise EvaluationError(f"{self.path} changed while it was read: {one_line(error)}") from error


def open_bag(path: Path) -> Bag:
    """Open a bag. Raises EvaluationError with one line if there is none or nothing in it can be read."""
    if not path.exists():
        raise EvaluationError(f"no bag at {path}; give a rosbag2 folder or an .mcap or .db3 file")
    if path.is_dir():
        bag = _open_folder(path)
    elif path.is_file() and _STORAGE.fullmatch(path.name):
        bag = _open_files(path, [path], Metadata())
        if beside := [name for name in _splits_beside(path) if name != _split(path.name)]:
            bag.notes.append(f"{path.name} is one of {len(beside) + 1} splits: give its folder to read all of them")
    else:
        raise EvaluationError(
            f"{path} is neither .mcap nor .db3 (nor .zstd of one); give a rosbag2 folder or such a file"
        )
    if not bag.count:
        because = f": {'; '.join(bag.warnings[-3:])}" if bag.warnings else ""
        raise EvaluationError(f"{path} holds no messages{because}")
    return bag


def recordings_in(folder: Path) -> set[str]:
    """Names of the recordings that have files in a folder; splits of one recording differ only in their number."""
    stems = (_stem(file.name) for file in folder.iterdir())
    return {_SPLIT_NUMBER.sub("", stem) for stem in stems if stem is not None}


def _open_folder(path: Path) -> Bag:
    there = sorted((file for file in path.iterdir() if _STORAGE.fullmatch(file.name)), key=_split_number)
    metadata = read_metadata(path)
    inner = [one for one in path.iterdir() if one.is_dir() and recordings_in(one)] if not there else []
    if len(inner) == 1 and not metadata.files:
        return _open_folder(inner[0])  # what a killed `specnav record` leaves
    if not there and not metadata.files:
        raise EvaluationError(f"{path} holds no .mcap and no .db3 file; give a rosbag2 folder")
    bag = _open_files(path, there, metadata)
    names = recordings_in(path)
    if metadata.problem and len(names) > 1:
        listed = ", ".join(sorted(names))
        bag.notes.append(f"{path.name}: files of {len(names)} recordings, which are read as one: {listed}")
    if metadata.problem:
        bag.notes.insert(0, f"{path.name}: {metadata.problem}; its files are read one by one")
    for file in sorted(path.iterdir()):
        if _RELATED.fullmatch(file.name) and file not in there:
            bag.skipped.append(Skipped(file.name, None, "it is not read: neither .mcap nor .db3 (nor .zstd of one)"))
        elif file.name.endswith("-wal") and not file.with_name(file.name[:-4]).exists() and file.stat().st_size:
            bag.skipped.append(Skipped(file.name, None, "it is not read: its database is missing"))
    return bag


def _splits_beside(path: Path) -> list[str]:
    """Names of the files in the same folder that are splits of the same recording, including this one."""
    stem = _stem(path.name)
    if stem is None or not _SPLIT_NUMBER.search(stem):
        return []
    mine = _SPLIT_NUMBER.sub("", stem)
    others = {_split(file.name): _stem(file.name) for file in path.parent.iterdir()}
    return [
        name for name, other in others.items()
        if other is not None and _SPLIT_NUMBER.search(other) and _SPLIT_NUMBER.sub("", other) == mine
    ]  # fmt: skip


def _stem(name: str) -> str | None:
    """A storage file's name without its extensions; None for other files."""
    found = _STORAGE.fullmatch(name)
    return Path(found[1]).stem if found is not None else None


def _split_number(path: Path) -> tuple[int, str]:
    """A sort key that puts NAME_10.mcap after NAME_9.mcap."""
    tail = path.name.partition(".")[0].rpartition("_")[2]
    return (int(tail) if tail.isdecimal() else -1, path.name)


def _open_files(path: Path, files: Sequence[Path], metadata: Metadata) -> Bag:
    bag = Bag(path, [], [], metadata.distro)
    opened: dict[str, Storage] = {}
    broken: dict[str, str] = {}
    for file in files:
        try:
            opened[file.name] = _open_file(file)
            opened[file.name].tally.compare(metadata.counts.get(file.name), f"{METADATA} includes them in its count")
        except (BrokenFile, OSError) as error:
            broken[file.name] = getattr(error, "strerror", None) or one_line(error)
    splits = {_split(name) for name in opened}
    for name, why in broken.items():
        if _split(name) in splits:  # killed during compression: the uncompressed split still exists
            bag.notes.append(f"{name}: {why}; the uncompressed file of this split is read")
        else:
            bag.skipped.append(Skipped(name, metadata.counts.get(name), f"{why}; nothing is read"))
    _leave_out_copies(opened, bag)
    _compare(bag, opened, {_split(file.name) for file in files}, metadata)
    bag.storages = list(opened.values())
    for one in bag.storages:
        bag.notes += one.tally.notes
        bag.skipped += [Skipped(one.name, count, reason) for reason, count in one.tally.skipped.items()]
        bag.distro = bag.distro or one.tally.distro
    bag.topics = _topics(bag)
    if metadata.count is not None and metadata.count > bag.found:
        missing = Skipped(METADATA, metadata.count - bag.found, "it includes them in its count, no file holds them")
        unknown = next((one for one in bag.skipped if one.count is None), None)
        if unknown is not None:
            bag.skipped.remove(unknown)
            missing = Skipped(unknown.file, missing.count, unknown.reason)
        bag.skipped.append(missing)
    return bag


def _open_file(file: Path) -> Storage:
    if not file.is_file():
        raise BrokenFile("it is not a regular file")
    found = _STORAGE.fullmatch(file.name)
    kind = found[2].lower() if found else ""
    make = McapStorage if kind == "mcap" else SqliteStorage
    if found is None or not found[3]:
        return make(file)
    folder = Path(mkdtemp(prefix="specnav-bag-"))
    try:
        problem = _decompress(file, folder / found[1])
        storage = make(folder / found[1], file.name)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(storage, shutil.rmtree, folder, ignore_errors=True)
    if problem:
        storage.tally.skip(problem, None)
    return storage


def _decompress(file: Path, target: Path) -> str:
    """Decompress a file; returns what is wrong with it, "" if it is complete. Raises BrokenFile."""
    left = Budget.from_file_bytes(file.stat().st_size).unpacked
    one = zstd.ZstdDecompressor()
    with file.open("rb") as stream, target.open("wb") as out:
        block = b""
        while True:
            if one.eof:
                block = one.unused_data or stream.read(_BLOCK_BYTES)
                if not block:
                    return ""
                one = zstd.ZstdDecompressor()
            elif one.needs_input and not (block := stream.read(_BLOCK_BYTES)):
                return "" if not out.tell() and not file.stat().st_size else "its compressed data is cut off"
            try:
                made = one.decompress(block, _BLOCK_BYTES)
            except zstd.ZstdError as error:
                if not out.tell():
                    raise BrokenFile("it is not compressed with zstd, or is damaged") from error
                return "its compressed data is damaged"
            block = b""
            left -= len(made)
            if left < 0:
                return "it unpacks to more than is allowed for a file of this size"
            out.write(made)


def _leave_out_copies(opened: dict[str, Storage], bag: Bag) -> None:
    """Use duplicate splits only once, whether compressed and uncompressed, or copied under another name."""
    by_split: dict[str, str] = {}
    by_content: dict[tuple[int, int], str] = {}
    for name in sorted(opened, key=lambda name: -opened[name].tally.used):
        tally = opened[name].tally
        split = _split(name)
        twin = by_split.get(split) or by_content.get((tally.used, tally.digest))
        if twin is not None and tally.used:
            bag.skipped.append(Skipped(name, tally.used, f"they are also in {twin}"))
            del opened[name]
            continue
        by_split[split] = name
        by_content[tally.used, tally.digest] = name


def _compare(bag: Bag, opened: dict[str, Storage], there: set[str], metadata: Metadata) -> None:
    """Compare the files listed in metadata.yaml with the existing ones. there: splits that have a file."""
    missing = [name for name in metadata.files if _split(name) not in there]
    for name in missing[:MOST_NAMED]:
        count = metadata.counts.get(name, metadata.counts.get(_split(name)))
        bag.skipped.append(Skipped(name, count, f"the file is missing, but {METADATA} lists it"))
    if len(missing) > MOST_NAMED:
        more = f"{len(missing) - MOST_NAMED} more files that it lists are missing"
        bag.skipped.append(Skipped(METADATA, None, more))
    known = {_split(name) for name in metadata.files}
    for name in opened if known else ():
        if _split(name) not in known:
            bag.notes.append(f"{name}: {METADATA} does not list it; it is read anyway")


def _split(name: str) -> str:
    """A file's name without the extension of its compression."""
    return name.removesuffix(".zstd").removesuffix(".zst")


def _topics(bag: Bag) -> list[BagTopic]:
    """All topics of the files. If a topic has several types, that of most messages is used, and the others are
    skipped.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for one in bag.storages:
        counts.update(one.tally.counts)
    chosen: dict[str, BagTopic] = {}
    for (name, kind), count in counts.most_common():
        if name in chosen:
            reason = f"{name} is of type {chosen[name].kind} elsewhere, and of type {kind} here"
            for one in bag.storages:
                if (name, kind) in one.tally.counts:
                    bag.skipped.append(Skipped(one.name, one.tally.counts[name, kind], reason))
            continue
        definitions = [one.tally.definitions[kind] for one in bag.storages if kind in one.tally.definitions]
        text, encoding = next((one for one in definitions if one[0]), definitions[0] if definitions else ("", ""))
        chosen[name] = BagTopic(name, kind, count, text, encoding)
    return sorted(chosen.values(), key=lambda topic: topic.name)
