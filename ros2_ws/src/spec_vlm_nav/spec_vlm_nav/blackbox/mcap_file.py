# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Writes a recording as an mcap file for Foxglove, rosbag2 and `specnav replay`.

It uses the library `mcap`, which accepts definitions as text and any open file, and stores metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from mcap.writer import CompressionType, Writer
from spec_vlm_nav.blackbox.box import METADATA, Recording
from spec_vlm_nav.blackbox.ring import Entry

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Channel:
    """A topic's type (package/msg/Name) and its definition; None: unknown."""

    kind: str
    definition: str | None


def write_mcap(stream: BinaryIO, recording: Recording, channels: Mapping[str, Channel]) -> None:
    """Write a recording to a stream; channels: by topic. Raises OSError."""
    writer = Writer(stream, chunk_size=CHUNK_BYTES, compression=CompressionType.ZSTD)
    writer.start("ros2", library="spec_vlm_nav blackbox")
    writer.add_metadata(METADATA, recording.metadata())
    schemas: dict[str, int] = {}
    numbers: dict[str, int] = {}
    counts: dict[str, int] = {}
    for entry, log_ns in _timed(recording):
        if entry.topic not in numbers:
            channel = channels[entry.topic]
            if channel.kind not in schemas:
                known = channel.definition is not None
                schemas[channel.kind] = writer.register_schema(
                    channel.kind, "ros2msg" if known else "", (channel.definition or "").encode()
                )
            numbers[entry.topic] = writer.register_channel(
                entry.topic, "cdr", schemas[channel.kind], {"offered_qos_profiles": ""}
            )
        counts[entry.topic] = counts.get(entry.topic, -1) + 1
        received_ns = recording.time_ns(entry.at)
        number, count = numbers[entry.topic], counts[entry.topic]
        writer.add_message(number, log_ns, entry.data, received_ns, count)
    writer.finish()


def _timed(recording: Recording) -> Iterable[tuple[Entry, int]]:
    """Yield entries with their log times; lasting entries get the time of the first entry."""
    entries = recording.contents.entries
    begin_ns = recording.time_ns(entries[0].at if entries else recording.taken_at)
    for entry in recording.contents.lasting:
        yield entry, begin_ns
    for entry in entries:
        yield entry, recording.time_ns(entry.at)
