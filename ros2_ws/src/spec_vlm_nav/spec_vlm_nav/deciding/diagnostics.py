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

"""The /diagnostics rows of vlm_nav_node."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
import math

from spec_vlm_nav.camera.watch import CameraWatch
from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.common.diagnostics import DiagnosticRow, Level
from spec_vlm_nav.deciding.parts.interfaces import DecisionReport
from spec_vlm_nav.model.course import RoundHistory
from spec_vlm_nav.model.decider import LinkReport

KEPT = 100
NO_COURSE = RoundHistory()


def percentile(values: list[float], share: float) -> float:
    """Return the nearest-rank percentile; NaN if there are no values."""
    if not values:
        return math.nan
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


class DecidingDiagnostics:
    """Error counts, decision times and the camera's rate since activation."""

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self.last_error = ""
        self.last_outcome = ""
        self._decision_ms: deque[float] = deque(maxlen=KEPT)
        self._frames = (0, 0.0)
        self._rate = 0.0

    def count(self, report: DecisionReport) -> None:
        """Record a decision's report."""
        if report.code is not ErrorCode.NONE:
            self.errors[report.code.name] += 1
            self.last_error = report.error
        elif report.decision_ms:
            self._decision_ms.append(report.decision_ms)

    def rows(
        self,
        camera: CameraWatch,
        camera_timeout_s: float,
        link: LinkReport,
        figures: Mapping[str, object],
        activity: str,
        now: float,
        course: RoundHistory = NO_COURSE,
    ) -> list[DiagnosticRow]:
        """
        Return the rows of /diagnostics.

        The camera's rate is measured between two calls; call it about once a second.
        """
        count, since = self._frames
        if since:
            self._rate = (camera.received - count) / max(1e-3, now - since)
        self._frames = (camera.received, now)
        age = camera.age(now)
        stale = age > camera_timeout_s
        said = "frozen" if camera.is_frozen else "no fresh frames" if stale else "ok"
        values: dict[str, object] = {
            "rate Hz": self._rate,
            "age s": age,
            "repeated frames": camera.repeated,
        }
        rows = [DiagnosticRow("camera", Level.ERROR if stale else Level.OK, said, values)]
        level = {
            LinkState.UP: Level.OK,
            LinkState.LOST: Level.ERROR,
            LinkState.UNKNOWN: Level.STALE,
        }[link.state]
        heard = math.inf if link.heard_at is None else now - link.heard_at
        words = link.reason or link.state.name.lower()
        values = {"RTT ms": link.rtt_ms, "heard s ago": heard}
        if course.rounds:
            values |= {
                "load": course.load,
                "forward ms": course.forward_ms,
                "waiting ms": course.queue_ms,
                "answers a forward": course.sessions,
            }
        rows.append(DiagnosticRow("verifier", level, words, values))
        if course.method:
            chosen = f"{course.method}: {course.plan}" if course.plan else course.method
            why = {"why": course.why} if course.why else {}
            tau = {"tokens a round": course.tau} if course.rounds else {}
            rows.append(DiagnosticRow("method", Level.OK, chosen, {**why, **tau}))
        times = list(self._decision_ms)
        parse = self.errors["PARSE_FAILED"]
        rows.append(
            DiagnosticRow(
                "decisions",
                Level.WARN if parse else Level.OK,
                self.last_error or activity,
                {
                    "decision ms p50": percentile(times, 0.5),
                    "decision ms p95": percentile(times, 0.95),
                    "parse failures": parse,
                    **{f"errors {name}": number for name, number in sorted(self.errors.items())},
                    **figures,
                    "instruction": activity,
                    "last outcome": self.last_outcome,
                },
            )
        )
        return rows
