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
How a video stream is, in one line and figures.

Free of ROS; times of a steady clock, seconds.
"""

from __future__ import annotations

from spec_vlm_nav.camera.decode import DecodeCounts, H264Decoder
from spec_vlm_nav.common.diagnostics import DiagnosticRow, Level

_TROUBLES = ("damaged", "lost", "not_h264", "empty", "repeated", "stray")


class StreamDiagnostics:
    """
    Remembers what was said last.

    Troubles are reported once each time they happen, in the next report.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = DecodeCounts().as_dict()
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
        Return one line.

        heard_at: when bytes last came (None: never); published: pictures passed on so far.
        """
        counts = decoder.counts.as_dict()
        new = {name: counts[name] - self._before[name] for name in _TROUBLES}
        passed = published - self._published
        self._before, self._published = counts, published
        values: dict[str, object] = {**counts, "passed_on": published}
        values["decode_ms_p50"], values["decode_ms_p99"] = decoder.took_ms(), decoder.took_ms(0.99)
        if decoder.size is not None:
            values["size"] = f"{decoder.size[0]}x{decoder.size[1]}"
        troubles = ", ".join(
            f'{count} {name.replace("_", " ")}' for name, count in new.items() if count
        )
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
