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

"""Decisions as the page shows them: tokens with their origin, and the shares of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
import json
from typing import Any

from spec_vlm_nav.common.codes import ActionSource, UNVERIFIED

ORIGINS = ("own", "drafted", "ahead", "unverified")
LONGEST, MOST_TOKENS = 600, 400
_SOURCE_NAMES = {source.value: source.name.lower() for source in ActionSource}


def time_shares(spans: Iterable[tuple[str, str, float, float]]) -> dict[str, float]:
    """
    Return a decision's time by camera, edge, link and cloud, ms.

    spans: lane, name, start and end. Overlapping time counts for the lane that was waited for: the
    cloud before the link before the camera before the edge.
    """
    changes: list[tuple[float, str, int]] = []  # time, lane, and whether a span begins (1) or ends (-1)
    for lane, name, start, end in spans:
        if end > start:
            where = "link" if lane in ("uplink", "downlink") else lane
            where = "camera" if name == "prepare frame" else where
            changes += [(start, where, 1), (end, where, -1)]
    shares = dict.fromkeys(("camera", "edge", "link", "cloud"), 0.0)
    under_way: Counter[str] = Counter()
    before = 0.0
    for at, where, change in sorted(changes):
        waited = next((lane for lane in ("cloud", "link", "camera", "edge") if under_way[lane]), None)
        if waited is not None:
            shares[waited] += at - before
        under_way[where] += change
        before = at
    return {lane: round(ms, 1) for lane, ms in shares.items()}


def decided_by(source: int) -> str:
    """Return the name of an action's source, from its number in a message."""
    return _SOURCE_NAMES.get(int(source), "supervisor")


def decision_record(m: Any) -> dict[str, Any]:
    """Return a DecisionMetrics message, live or from a bag, as a plain record."""
    texts, origins = list(getattr(m, "token_texts", ())), list(getattr(m, "token_origins", ()))
    pieces = [[t, ORIGINS[min(int(o), 3)]] for t, o in zip(texts, origins, strict=False)]
    times = (map(float, m.span_start_ms), map(float, m.span_end_ms))
    spans = list(zip(m.span_lane, m.span_name, *times, strict=False))
    joules = float(getattr(m, "joules", -1.0))  # older recordings have no such field
    return {
        "session": str(m.session),
        "sequence": int(m.sequence),
        "at": m.header.stamp.sec + m.header.stamp.nanosec * 1e-9,
        "instruction": m.instruction_text,
        "method": m.method,
        "reasoning": m.reasoning,
        "text": m.text,
        "action": m.action,
        "by": decided_by(m.source),
        "rule": m.rule,
        "verification": int(m.verification),
        "error": m.error,
        "decision_ms": round(float(m.decision_ms), 1),
        "camera_to_action_ms": round(float(m.camera_to_action_ms), 1),
        "total_ms": round(float(m.total_ms), 1),
        "joules": round(joules, 3) if joules >= 0 else None,
        "rounds": int(m.rounds),
        "drafted": int(sum(m.drafted)),
        "accepted": int(sum(m.accepted)),
        "bytes": int(sum(m.uplink_bytes) + sum(m.downlink_bytes) + m.prompt_bytes),
        "pieces": pieces,
        "shares": time_shares(spans),
    }


class AnswerView:
    """
    The model's answer so far in one robot's decision under way.

    Tokens arrive on `~/tokens` as JSON, the verified sentence on `~/reasoning`.
    """

    def __init__(self) -> None:
        self._words = ""
        self._pieces: list[tuple[str, str]] = []

    def clear(self) -> None:
        """Clear the answer: the decision is made."""
        self._words, self._pieces = "", []

    def on_tokens(self, said: str) -> bool:
        """Record tokens; returns whether they could be parsed."""
        try:
            pieces = [
                (str(words)[:LONGEST], ORIGINS[min(max(int(origin), 0), len(ORIGINS) - 1)])
                for words, origin in json.loads(said)[:MOST_TOKENS]
            ]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return False
        self._pieces = pieces
        self._words = "".join(words for words, _ in pieces)
        return True

    def on_sentence(self, words: str) -> None:
        """Record a sentence; tokens that contain it stay, as they also have origins."""
        words = words[:LONGEST]
        if self._words.strip().startswith(words.removeprefix(UNVERIFIED).strip()):
            return
        self._words, self._pieces = words, []

    def told(self) -> dict[str, Any]:
        """Return the answer for a page."""
        bare = any(origin == ORIGINS[-1] for _, origin in self._pieces)
        return {
            "words": self._words.removeprefix(UNVERIFIED),
            "pieces": list(self._pieces),
            "unverified": bare or self._words.startswith(UNVERIFIED),
        }
