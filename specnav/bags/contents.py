# SPDX-License-Identifier: Apache-2.0
"""Reads a robot's decisions from a bag: frames, instructions and recorded actions.

Topic names differ from robot to robot, so topics are recognised by type, and Strings by the end of their name. Pictures
are not kept: a first pass collects stamps, a second one yields the pictures.
"""

from __future__ import annotations

import bisect
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from spec_vlm_nav.camera.images import RawImage
from specnav.bags.source import Bag
from specnav.bags.storage import BagMessage, BagTopic, Skipped
from specnav.bags.types import Types
from specnav.results.errors import EvaluationError

IMAGE, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
STRING = "std_msgs/msg/String"
METRICS = "spec_vlm_nav_interfaces/msg/DecisionMetrics"
COMMAND = "spec_vlm_nav_interfaces/msg/MotionCommand"
STATUS = "spec_vlm_nav_interfaces/msg/MotionStatus"
NO_ACTION = "no action"
_STAMP = struct.Struct("<iI")
_BIG_STAMP = struct.Struct(">iI")
_PARSE_FAILED = 6
_MODEL, _STOP, _MOVE = 0, 0, 2


@dataclass(frozen=True)
class FrameEntry:
    """One camera message: its number on its topic, header stamp and recording time (ns)."""

    number: int
    stamp_ns: int
    time_ns: int


@dataclass(frozen=True)
class Reference:
    """The known action of a frame. sent: the action carried out, which the exploration policy may have changed."""

    action: str
    sent: str = ""
    instruction: str = ""


@dataclass
class BagContents:
    """Frames in recording order, instructions with their times, and references by frame stamp.

    source: where the references come from ("": there are none). notes: caveats for readers of the figures. skipped:
    messages that do not match their type, by topic.
    """

    image: BagTopic
    frames: list[FrameEntry]
    instructions: list[tuple[int, str]] = field(default_factory=list)
    references: dict[int, Reference] = field(default_factory=dict)
    source: str = ""
    notes: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def instruction_at(self, frame: FrameEntry) -> tuple[int, str]:
        """(number, text) of the instruction in force when the frame was recorded; (-1, "") if there was none yet."""
        place = bisect.bisect_right(self.instructions, frame.time_ns, key=itemgetter(0)) - 1
        return (place, self.instructions[place][1]) if place >= 0 else (-1, "")


def choose_image_topic(
    bag: Bag, wanted: str | None, advice: str = "choose one with --image-topic"
) -> BagTopic:
    """The camera topic: the named one, otherwise the only one. Raises EvaluationError that lists the topics.

    advice: what to do about several.
    """
    images = [topic for topic in bag.topics if topic.kind in (IMAGE, COMPRESSED)]
    there = ", ".join(str(topic) for topic in images or bag.topics)
    if wanted is not None:
        found = bag.topic(wanted)
        if found is None:
            raise EvaluationError(f"{bag.path} has no topic {wanted}; topics: {there}")
        if found not in images:
            raise EvaluationError(
                f"{found.name} is of type {found.kind}, which is not an image topic; topics: {there}"
            )
        if not found.count:
            raise EvaluationError(f"{found.name} holds no frames; topics: {there}")
        return found
    with_frames = [topic for topic in images if topic.count]
    # Ignore depth images if there are others.
    with_frames = [topic for topic in with_frames if "depth" not in topic.name.lower()] or with_frames
    if not with_frames:
        what = "no frames on its image topics" if images else "no image topic"
        raise EvaluationError(f"{bag.path} holds {what}; topics: {there}")
    if len(with_frames) > 1:
        raise EvaluationError(f"{bag.path} has several image topics, {advice}: {there}")
    return with_frames[0]


def topics_of_robot(bag: Bag, image: BagTopic) -> list[BagTopic]:
    """The bag's topics without those of other robots than the one with this camera.

    Robots of one recording have a namespace each. All topics if the bag has one robot, or the camera is of none.
    """
    robots = {_parent(topic.name) for topic in bag.topics if topic.kind in (COMMAND, STATUS)}
    robots |= {_parent(_parent(topic.name)) for topic in bag.topics if topic.kind == METRICS}
    own = _owner(image.name, robots)
    return [topic for topic in bag.topics if own is None or _owner(topic.name, robots) in (own, None)]


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _owner(name: str, robots: Collection[str]) -> str | None:
    """The namespace that a topic is in: the longest of several; None if it is in none of them."""
    return max((robot for robot in robots if name.startswith(f"{robot}/")), key=len, default=None)


def read_contents(bag: Bag, types: Types, image: BagTopic, vocabulary: Mapping[str, str]) -> BagContents:
    """Read everything but the pictures. vocabulary: sentences of the language, mapped to names of actions."""
    tables = {
        topic.name: topic
        for topic in topics_of_robot(bag, image)
        if topic.kind in (METRICS, COMMAND) or (topic.kind == STRING and _role(topic))
    }
    for topic in (image, *tables.values()):
        types.learn(topic)
    contents = BagContents(image, [])
    found = _Found(vocabulary)
    damaged: Counter[str] = Counter()
    for message in bag.messages([image.name, *tables]):
        if message.topic == image.name:
            contents.frames.append(FrameEntry(len(contents.frames), stamp_of(message.data), message.time_ns))
            continue
        topic = tables[message.topic]
        try:
            found.take(topic, message, types.decode(topic.kind, message.data))
        except (EvaluationError, AttributeError, TypeError):  # not such a message, or one with other fields
            damaged[message.topic] += 1
    for name, count in damaged.items():
        contents.skipped.append(Skipped(name, count, f"not of type {tables[name].kind}"))
    contents.notes += map(str, contents.skipped)
    _repair_stamps(contents)
    contents.instructions = sorted(found.instructions)
    found.choose(contents)
    return contents


def pictures(
    bag: Bag, types: Types, image: BagTopic, wanted: Collection[int]
) -> Iterator[tuple[int, bytes | RawImage | None]]:
    """Yield (number, picture) of the wanted frames, in the bag's order; the picture is None if it cannot be read."""
    last = max(wanted, default=-1)
    for number, message in enumerate(bag.messages([image.name])):
        if number in wanted:
            yield number, _picture(types, image, message)
        if number >= last:
            return


def _picture(types: Types, image: BagTopic, message: BagMessage) -> bytes | RawImage | None:
    try:
        decoded = types.decode(image.kind, message.data)
        if image.kind == COMPRESSED:
            return bytes(decoded.data)
        return RawImage(decoded.encoding, decoded.width, decoded.height, decoded.step, bytes(decoded.data))
    except (EvaluationError, AttributeError, TypeError):  # not such a message, or one with other fields
        return None


def stamp_of(data: bytes) -> int:
    """The header stamp (ns) of a message that begins with a header, without decoding the rest; 0 if truncated."""
    if len(data) < 12:
        return 0
    seconds, nanoseconds = (_STAMP if data[1] & 1 else _BIG_STAMP).unpack_from(data, 4)
    return seconds * 1_000_000_000 + nanoseconds


def _repair_stamps(contents: BagContents) -> None:
    """Replace empty or repeated header stamps, which some cameras produce, by the time of recording."""
    stamps = Counter(frame.stamp_ns for frame in contents.frames)
    seen: set[int] = set()
    repaired = 0
    for place, frame in enumerate(contents.frames):
        stamp_ns = frame.stamp_ns
        if stamps[stamp_ns] > 1 and (stamp_ns in seen or stamp_ns == 0 or len(stamps) == 1):
            repaired += 1
            stamp_ns = frame.time_ns
            while stamp_ns in seen or stamp_ns in stamps:
                stamp_ns += 1
            contents.frames[place] = FrameEntry(frame.number, stamp_ns, frame.time_ns)
        seen.add(stamp_ns)
    if repaired and repaired == len(contents.frames):
        contents.notes.append(
            "all frames have the same header stamp: they are identified by their time of recording"
        )
    elif repaired:
        contents.notes.append(
            f"{repaired} frames have no header stamp or a repeated one: they are identified by their time of recording"
        )


def _role(topic: BagTopic) -> str:
    """The role of a String topic, by the end of its name."""
    name = topic.name.rstrip("/").rpartition("/")[2]
    return name if name in ("instruction", "action") else ""


class _Found:
    """References of every kind; the most exact kind is used."""

    def __init__(self, vocabulary: Mapping[str, str]) -> None:
        self._vocabulary = vocabulary
        self._names = frozenset(vocabulary.values())
        self.instructions: list[tuple[int, str]] = []
        self._metrics: dict[int, Reference] = {}
        self._commands: dict[int, Reference] = {}
        self._said: list[tuple[int, str]] = []
        self._unknown = 0

    def take(self, topic: BagTopic, message: BagMessage, decoded: Any) -> None:
        """Store what a message holds."""
        if topic.kind == METRICS:
            self._take_metrics(decoded)
        elif topic.kind == COMMAND:
            self._take_command(decoded)
        elif _role(topic) == "instruction":
            self.instructions.append((message.time_ns, decoded.data))
        else:
            self._said.append((message.time_ns, decoded.data.strip()))

    def _take_metrics(self, decoded: Any) -> None:
        stamp = _time_ns(decoded.frame_stamp)
        action = self._vocabulary.get(decoded.model_action, "")
        if not action and decoded.error_code == _PARSE_FAILED:
            action = NO_ACTION
        self._unknown += bool(decoded.model_action) and not action
        if stamp and action:
            self._metrics[stamp] = Reference(action, decoded.action, decoded.instruction_text)

    def _take_command(self, decoded: Any) -> None:
        stamp = _time_ns(decoded.frame_stamp)
        name = ""
        if decoded.kind == _STOP:
            name = "stop"
        elif decoded.kind == _MOVE:
            name = decoded.text.strip()
        if stamp and decoded.source == _MODEL and name in self._names:
            self._commands[stamp] = Reference(name)

    def choose(self, contents: BagContents) -> None:
        """Set the contents' references from the best source."""
        if self._unknown:
            contents.notes.append(
                f"{self._unknown} recorded decisions are not actions of the language and were ignored"
            )
        stamps = {frame.stamp_ns for frame in contents.frames}
        for source, found in (("metrics", self._metrics), ("motion commands", self._commands)):
            matched = {stamp: one for stamp, one in found.items() if stamp in stamps}
            if found and len(matched) < len(found):
                contents.notes.append(
                    f"{len(found) - len(matched)} of {len(found)} recorded decisions ({source}) are about frames that "
                    "are not in the bag"
                )
            if matched:
                contents.references, contents.source = matched, source
                _fill_in_instructions(contents)
                return
        self._from_words(contents)

    def _from_words(self, contents: BagContents) -> None:
        times = [frame.time_ns for frame in contents.frames]
        unused = 0
        for time_ns, text in self._said:
            place = bisect.bisect_left(times, time_ns) - 1
            if place >= 0 and (name := self._vocabulary.get(text)) is not None:
                contents.references[contents.frames[place].stamp_ns] = Reference(name)
            else:
                unused += 1
        if unused:
            contents.notes.append(
                f"{unused} of {len(self._said)} recorded actions come before any frame, or are not actions of the "
                "language, and were ignored"
            )
        if contents.references:
            contents.source = "action topic"
            contents.notes.append(
                "the bag holds actions without the frame they were decided from: each is compared with the last frame "
                "before it, and moves of an exploration policy are included"
            )


def _fill_in_instructions(contents: BagContents) -> None:
    """Add instructions that the recording missed (given before it began, or lost) from those stored with
    decisions.
    """
    missed: list[tuple[int, str]] = []
    for frame in contents.frames:
        known = contents.references.get(frame.stamp_ns)
        if known is None or not known.instruction:
            continue
        place, words = contents.instruction_at(frame)
        if missed and (place < 0 or contents.instructions[place][0] < missed[-1][0]):
            words = missed[-1][1]
        if _bare(words) != _bare(known.instruction):
            missed.append((frame.time_ns, known.instruction))
    contents.instructions = sorted([*contents.instructions, *missed])


def _bare(words: str) -> str:
    """An instruction, normalised as the robot does it."""
    return " ".join(words.split()).rstrip(" .!?")


def _time_ns(stamp: Any) -> int:
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)
