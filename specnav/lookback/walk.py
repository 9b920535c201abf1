# SPDX-License-Identifier: Apache-2.0
"""A bag for viewing: its pictures, decisions and events on one clock, and a person's labels of the correct actions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spec_vlm_nav.camera.images import RawImage, from_raw, to_jpeg
from spec_vlm_nav.common.errors import FrameError
from spec_vlm_nav.console.decisions import decision_record
from specnav.bags.contents import (
    METRICS,
    FrameEntry,
    choose_image_topic,
    pictures,
    read_contents,
    topics_of_robot,
)
from specnav.bags.labels import read_labels
from specnav.bags.source import Bag, open_bag, recordings_in
from specnav.bags.storage import BagTopic
from specnav.bags.timeline import BagTimeline
from specnav.bags.types import NEWEST, Types
from specnav.blackbox.timeline import Lenient, TimelineEvent, events
from specnav.record.types import own_types
from specnav.replay.plan import VOCABULARY
from specnav.results.errors import EvaluationError
from specnav.results.files import write_bytes_atomic

MOST_BYTES = 400_000_000  # bytes of pictures kept in memory


@dataclass(frozen=True)
class Walk:
    """The content of the page. Times are seconds since the first picture, with long pauses shortened.

    pictures: JPEG (or PNG) by frame number.
    """

    name: str
    frames: tuple[FrameEntry, ...]
    pictures: dict[int, bytes]
    decisions: tuple[dict[str, Any], ...]
    events: tuple[TimelineEvent, ...]
    notes: tuple[str, ...]
    timeline: BagTimeline = field(default_factory=BagTimeline)

    def seconds(self, time_ns: int) -> float:
        """A time on the walk's clock."""
        begin_ns = self.timeline.played(self.frames[0].time_ns)
        return round((self.timeline.played(time_ns) - begin_ns) / 1e9, 3)

    @property
    def end(self) -> float:
        """When the walk ends: with what happened after the last picture, until one that is not shown."""
        last = max(self.pictures)
        hidden = next((self.seconds(f.time_ns) for f in self.frames if f.number > last), math.inf)
        times = [self.seconds(f.time_ns) for f in self.frames if f.number == last]
        times += [d["t"] for d in self.decisions] + [self.seconds(e.time_ns) for e in self.events]
        return max((t for t in times if t < hidden), default=0.0)

    def told(self) -> dict[str, Any]:
        """Everything except the pictures, as JSON for the page."""
        return {
            "name": self.name,
            "end": self.end,
            "frames": [
                {"number": f.number, "t": self.seconds(f.time_ns), "stamp_ns": str(f.stamp_ns)}
                for f in self.frames
                if f.number in self.pictures
            ],
            "decisions": self.decisions,
            "events": [{"t": self.seconds(e.time_ns), "what": e.what, "text": e.text} for e in self.events],
            "actions": list(VOCABULARY.values()),
            "notes": self.notes,
        }


def find_bag(path: Path) -> Path:
    """The bag at a path: the path itself, or the bag in a run's folder. Raises EvaluationError."""
    if path.is_dir() and not (path / "metadata.yaml").is_file() and len(recordings_in(path)) != 1:
        found = sorted(path.rglob("*.mcap"))
        if len(found) == 1:
            return found[0]
        what = f"{len(found)} of them: name one" if found else "none"
        raise EvaluationError(f"{path} is not a bag; .mcap files in it: {what}")
    return path


def read_walk(path: Path, image_topic: str | None = None) -> Walk:
    """Read a bag. Raises EvaluationError if there is no bag, or no picture in it."""
    bag = open_bag(find_bag(path))
    types = own_types(bag.distro or NEWEST)
    image = choose_image_topic(bag, image_topic)
    contents = read_contents(bag, types, image, VOCABULARY)
    notes = list(contents.notes)
    kept: dict[int, bytes] = {}
    size = hidden = 0
    for number, picture in pictures(bag, types, image, {f.number for f in contents.frames}):
        encoded = _encoded(picture)
        if encoded is None:
            hidden += 1
            continue
        size += len(encoded)
        if size > MOST_BYTES:
            notes.append(f"pictures after the first {MOST_BYTES // 10**6} MB are left out")
            break
        kept[number] = encoded
    if not kept:
        raise EvaluationError(f"{bag.path} holds no picture that can be shown on {image.name}")
    if hidden:
        notes.append(f"{hidden} messages on {image.name} hold no picture that can be shown")
    topics = topics_of_robot(bag, image)
    happened = tuple(events(bag, topics, types, notes))
    found = Walk(bag.path.name, tuple(contents.frames), kept, (), happened, (), bag.timeline)
    decisions = tuple(_decisions(bag, topics, types, found, notes))
    notes = list(dict.fromkeys([bag.summary, *bag.warnings, *bag.timeline.notes, *notes]))
    return replace(found, decisions=decisions, notes=tuple(notes))


def _encoded(picture: bytes | RawImage | None) -> bytes | None:
    if picture is None or isinstance(picture, bytes):
        return picture or None
    try:
        return to_jpeg(from_raw(picture), 85)
    except FrameError:
        return None


def _decisions(
    bag: Bag, topics: Iterable[BagTopic], types: Types, walk: Walk, notes: list[str]
) -> list[dict[str, Any]]:
    topics = [topic for topic in topics if topic.kind == METRICS]
    by_stamp = {frame.stamp_ns: frame for frame in walk.frames}
    found = []
    unread = 0
    for message in bag.messages([topic.name for topic in topics]) if topics else ():
        try:
            said = types.decode(METRICS, message.data)
            record = decision_record(Lenient(said))
            stamp_ns = said.frame_stamp.sec * 10**9 + said.frame_stamp.nanosec
        except (EvaluationError, AttributeError, TypeError, ValueError):
            unread += 1
            continue
        frame = by_stamp.get(stamp_ns)
        if not record["text"] and not record["action"] and not said.model_action:
            continue  # not a decision: the node only reports why it stopped
        found.append(
            {
                **record,
                "t": walk.seconds(message.time_ns),
                "frame": frame.number if frame else None,
                "stamp_ns": str(stamp_ns),
                "model_action": VOCABULARY.get(said.model_action, ""),
            }
        )
    if unread:
        notes.append(f"{unread} messages on {', '.join(topic.name for topic in topics)} are not {METRICS}")
    return found


class Labels:
    """The labels of one walk in the format of `specnav replay --labels`, saved at every change.

    Raises EvaluationError for an invalid file.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.by_stamp: dict[int, str] = {}
        if file.exists() and file.stat().st_size:
            self.by_stamp = {one.stamp_ns: one.action for one in read_labels(file, VOCABULARY)}

    def put(self, stamp_ns: int, action: str) -> None:
        """Label a frame; "" removes its label. Raises EvaluationError."""
        if action and action not in VOCABULARY.values():
            raise EvaluationError(f"{action[:40]!r} is not an action; choose {', '.join(VOCABULARY.values())}")
        labels = {**self.by_stamp, stamp_ns: action}
        rows = [f"{stamp},{words}" for stamp, words in sorted(labels.items()) if words]
        try:
            if rows:
                write_bytes_atomic(self._file, ("\n".join(["stamp_ns,action", *rows]) + "\n").encode())
            else:  # a file without labels could not be read again
                self._file.unlink(missing_ok=True)
        except OSError as error:
            raise EvaluationError(f"labels cannot be saved in {self._file}: {error.strerror}") from error
        self.by_stamp = {stamp: words for stamp, words in labels.items() if words}
