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
Decodes H.264 video to pictures, each with the stamp of its input bytes.

Free of ROS; needs PyAV.

A model must not decide from a picture that the decoder concealed: after a lost or damaged picture
there is no output until the next key picture. Damaged, repeated or invalid bytes are counted and
dropped; no input raises.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
import time

import numpy as np
from PIL import Image
from spec_vlm_nav.camera.h264 import (
    access_units,
    AccessUnit,
    IDR,
    kind,
    Numbering,
    PPS,
    SLICE,
    SliceHead,
    SPS,
)
from spec_vlm_nav.common.diagnostics import DiagnosticRow, Level
from spec_vlm_nav.common.errors import CameraError

try:
    import av
except ImportError as error:  # pragma: no cover - it is installed with the rest
    raise CameraError(f"decoding H.264 needs PyAV: pip install av ({error})") from error

Stamp = tuple[int, int]
MAX_BYTES = 8 << 20
MAX_PIXELS = 4096 * 4096
KEPT_TIMES = 200
KEPT_STAMPS = 32  # more than the reordering delay of any stream
_TROUBLES = ("damaged", "lost", "not_h264", "empty", "repeated", "stray")


@dataclass
class DecodeCounts:
    """Counts of inputs and outputs. All but `fed` and `pictures` count dropped inputs or events."""

    fed: int = 0
    pictures: int = 0
    empty: int = 0
    not_h264: int = 0
    repeated: int = 0
    damaged: int = 0
    lost: int = 0  # gaps: pictures with missing references
    waiting: int = 0  # dropped while waiting for a key picture
    stray: int = 0  # decoded pictures without a known stamp
    new_sizes: int = 0


@dataclass(frozen=True)
class DecodedPicture:
    """A decoded picture, its pixels not converted yet; took_ms: decoding time."""

    stamp: Stamp
    frame: av.VideoFrame
    took_ms: float

    def image(self, max_width: int = 0) -> Image.Image:
        """Return the picture as RGB, scaled down to max_width if it is wider (0: never)."""
        width, height = self.frame.width, self.frame.height
        if max_width and width > max_width:
            # An even height: the chroma planes have half the resolution.
            width, height = max_width, max(2, round(height * max_width / width / 2) * 2)
        pixels: np.ndarray = self.frame.reformat(width, height, format="rgb24").to_ndarray()
        return Image.fromarray(pixels)


class H264Decoder:
    """
    Decodes one stream, fed with whole access units or parameter sets, one or several at a time.

    strict: False also outputs pictures with missing references, which may be smeared.
    """

    def __init__(self, strict: bool = True) -> None:
        self.counts = DecodeCounts()
        self.size: tuple[int, int] | None = None
        self.waits_since: float | None = None
        self._strict = strict
        self._numbering = Numbering()
        self._stamps: dict[int, Stamp] = {}
        self._number = 0
        self._last = b""
        self._has_key = False
        self._took: deque[float] = deque(maxlen=KEPT_TIMES)
        self._begin_anew()

    def took_ms(self, share: float = 0.5) -> float:
        """Return a percentile of the last decoding times, ms; 0 before the first picture."""
        return float(np.quantile(self._took, share)) if self._took else 0.0

    def feed(self, data: bytes, stamp: Stamp) -> list[DecodedPicture]:
        """Decode the bytes of one message; returns the completed pictures."""
        counts = self.counts
        counts.fed += 1
        if not data:
            counts.empty += 1
            return []
        if data == self._last:
            counts.repeated += 1
            return []
        self._last = data
        units = list(access_units(data)) if len(data) <= MAX_BYTES else []
        if not units:
            counts.not_h264 += 1
            return []
        pictures: list[DecodedPicture] = []
        for unit in units:
            pictures += self._take(unit, stamp)
        return pictures

    def _take(self, unit: AccessUnit, stamp: Stamp) -> list[DecodedPicture]:
        self._numbering.learn(unit)
        if not unit.has_picture:
            return []
        head = self._head(unit)
        is_key = head is not None and (
            head.is_idr or (head.is_intra and any(kind(n) == SPS for n in unit.nals))
        )
        if head is None:
            self.counts.damaged += 1
            self._wait()
            return []
        if self._numbering.follow(head) and not is_key:
            self.counts.lost += 1
            if self._strict:
                self._wait()
        if self.waits_since is not None and not is_key and (self._strict or not self._has_key):
            self.counts.waiting += 1
            return []
        return self._decode(unit, head, is_key, stamp)

    def _head(self, unit: AccessUnit) -> SliceHead | None:
        first = next(nal for nal in unit.nals if kind(nal) in (SLICE, IDR))
        head = self._numbering.read_slice(first)
        # The first slice of a picture must begin at its first block; otherwise the start was lost.
        return head if head is not None and head.first else None

    def _decode(self, unit: AccessUnit, head: SliceHead, is_key: bool, stamp: Stamp) -> list[DecodedPicture]:
        began = time.perf_counter()
        data = unit.data
        if is_key and not self._has_key and not any(kind(nal) in (SPS, PPS) for nal in unit.nals):
            # The parameter sets may have been fed only to the previous decoder instance.
            data = AccessUnit((*self._numbering.sets_of(head), *unit.nals)).data
        packet = av.Packet(data)
        self._number += 1
        packet.pts = self._number
        self._stamps[self._number] = stamp
        try:
            frames = self._codec.decode(packet)
        except (av.error.FFmpegError, ValueError):
            self.counts.damaged += 1
            self._begin_anew()
            return []
        if is_key:
            self._has_key, self.waits_since = True, None
        return [picture for frame in frames if (picture := self._emit(frame, began)) is not None]

    def _emit(self, frame: av.VideoFrame, began: float) -> DecodedPicture | None:
        stamp = self._stamps.pop(frame.pts, None) if frame.pts is not None else None
        if frame.is_corrupt:
            self.counts.damaged += 1
            self._wait()
            return None
        if stamp is None:  # a picture is never published with another picture's stamp
            self.counts.stray += 1
            return None
        for old in [number for number in self._stamps if number < self._number - KEPT_STAMPS]:
            del self._stamps[old]
        size = (frame.width, frame.height)
        if self.size is not None and size != self.size:
            self.counts.new_sizes += 1
        self.size = size
        self.counts.pictures += 1
        took_ms = (time.perf_counter() - began) * 1e3
        self._took.append(took_ms)
        return DecodedPicture(stamp, frame, took_ms)

    def _wait(self) -> None:
        if self.waits_since is None:
            self.waits_since = time.perf_counter()

    def _begin_anew(self) -> None:
        """Create a new decoder: one that has seen damage may show it in later pictures."""
        codec = av.CodecContext.create("h264", "r")
        codec.thread_count = 1  # more threads would delay pictures
        codec.options = {
            "err_detect": "explode",
            "flags": "low_delay",
            "max_pixels": str(MAX_PIXELS),
        }
        self._codec, self._has_key = codec, False
        self._stamps.clear()
        self._wait()


class StreamDiagnostics:
    """
    Builds the /diagnostics row of a video stream.

    Each problem is reported once, in the next report after it occurred.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = asdict(DecodeCounts())
        self._published = 0

    def report(
        self,
        decoder: H264Decoder,
        published: int,
        heard_at: float | None,
        now: float,
        silence_s: float,
    ) -> DiagnosticRow:
        """
        Return the row.

        heard_at: when bytes were last received (None: never). published: pictures published so far.
        Times are of a steady clock, s.
        """
        counts = asdict(decoder.counts)
        new = {name: counts[name] - self._before[name] for name in _TROUBLES}
        passed = published - self._published
        self._before, self._published = counts, published
        values: dict[str, object] = {**counts, "passed_on": published}
        values["decode_ms_p50"], values["decode_ms_p99"] = decoder.took_ms(), decoder.took_ms(0.99)
        if decoder.size is not None:
            values["size"] = f"{decoder.size[0]}x{decoder.size[1]}"
        troubles = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in new.items() if count)
        if heard_at is None:
            level, said = Level.ERROR, "no video yet"
        elif now - heard_at > silence_s:
            level, said = Level.ERROR, f"silent for {now - heard_at:.1f} s"
        elif decoder.waits_since is not None:
            level = Level.WARN
            said = "waiting for a key picture" + (f" ({troubles})" if troubles else "")
        elif troubles:
            level, said = Level.WARN, troubles
        else:
            level, said = Level.OK, f"{passed} pictures"
        return DiagnosticRow("video", level, said, values)
