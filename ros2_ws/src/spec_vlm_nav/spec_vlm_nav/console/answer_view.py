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
What the model has said so far in the decision under way: tokens by how they came, as they come.

Pure. Tokens come on `~/tokens`, as JSON; the sentence that was verified on `~/reasoning`.
"""

from __future__ import annotations

import json
from typing import Any

from spec_vlm_nav.common.codes import UNVERIFIED
from spec_vlm_nav.console.decisions import ORIGINS

LONGEST, MOST_TOKENS = 600, 400


class AnswerView:
    """Of one robot."""

    def __init__(self) -> None:
        self._words = ""
        self._pieces: list[tuple[str, str]] = []

    def clear(self) -> None:
        """Forget it: the decision is made."""
        self._words, self._pieces = "", []

    def on_tokens(self, said: str) -> bool:
        """Take tokens; returns whether they could be read."""
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
        """Take a sentence; tokens that say the same stay, for they say more."""
        words = words[:LONGEST]
        if self._words.strip().startswith(words.removeprefix(UNVERIFIED).strip()):
            return
        self._words, self._pieces = words, []

    def told(self) -> dict[str, Any]:
        """Return what a page shows."""
        bare = any(origin == ORIGINS[-1] for _, origin in self._pieces)
        return {
            "words": self._words.removeprefix(UNVERIFIED),
            "pieces": list(self._pieces),
            "unverified": bare or self._words.startswith(UNVERIFIED),
        }
