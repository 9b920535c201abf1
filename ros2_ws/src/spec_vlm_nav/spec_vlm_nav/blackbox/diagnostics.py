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

"""What the black box says of itself on /diagnostics."""

from __future__ import annotations

from spec_vlm_nav.blackbox.box import BlackBox
from spec_vlm_nav.blackbox.folder import Usage
from spec_vlm_nav.common.diagnostics import DiagnosticRow, Level

MB = 1e6


def row(
    box: BlackBox, usage: Usage, max_bytes: int, failed: int, trouble: str, now: float
) -> DiagnosticRow:
    """
    Return one line.

    max_bytes: of all files; failed: files that could not be written; trouble: why the last one
    could not, '' when it could.
    """
    ring = box.ring
    values: dict[str, object] = {
        "buffer s": ring.span_s(now),
        "buffer MB": ring.size / MB,
        "buffer bound MB": ring.max_bytes / MB,
        "messages": ring.count,
        "dropped pictures": ring.dropped_pictures,
        "oversized messages": ring.oversized,
        "files": usage.files,
        "files MB": usage.size / MB,
        "files bound MB": max_bytes / MB,
        "failed files": failed,
        "last reason": box.last_word or "none",
    }
    if trouble:
        return DiagnosticRow("black box", Level.ERROR, trouble, values)
    if box.schedule.waiting:
        said = f"{box.last_word}: written in {box.schedule.due_in_s(now):.0f} s"
        return DiagnosticRow("black box", Level.OK, said, values)
    return DiagnosticRow("black box", Level.OK, f"{ring.count} messages", values)
