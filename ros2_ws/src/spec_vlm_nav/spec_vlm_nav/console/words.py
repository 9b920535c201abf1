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
Messages between page and console: JSON objects of plain values. Pure.

A client may send anything; only messages that this package's page could send are accepted.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

STOPPING = ("stop", "estop")
LONGEST_WORDS, LARGEST_MESSAGE = 2000, 256_000
_ODD = re.compile("[\0\ud800-\udfff]")
MOST_FIELDS, LARGEST = 20, 2**53  # beyond, a browser's numbers are not exact


def understood(text: str) -> dict[str, Any] | None:
    """
    Return a page's message, or None if it is invalid.

    A stop is accepted even with invalid fields; all of its fields are then dropped.
    """
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    plain = {key: value for key, value in said.items() if _is_plain(key) and _is_plain(value)}
    if len(plain) == len(said) <= MOST_FIELDS:
        return plain
    return {"t": plain["t"]} if plain.get("t") in STOPPING else None


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return _ODD.search(value) is None
    if isinstance(value, bool) or value is None:
        return True
    return isinstance(value, (int, float)) and abs(value) <= LARGEST  # also False for NaN


def page_message(what: str, told: dict[str, Any]) -> str:
    """Return a message for a page; NaN and infinity become null, as JSON cannot express them."""
    message = {"t": what, **told}
    try:
        return json.dumps(message, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(message), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value
