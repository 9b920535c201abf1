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

"""Words of other programs and people, as a log or a report may repeat them."""

from __future__ import annotations

LONGEST = 300
LONGEST_LINE = 1000  # of a log, characters


def one_line(text: str, most: int = LONGEST) -> str:
    """Return foreign words without line breaks and control characters, cut to a fair length."""
    words = " ".join(text[: 4 * most].split())
    return "".join(c if c.isprintable() else "?" for c in words)[:most]
