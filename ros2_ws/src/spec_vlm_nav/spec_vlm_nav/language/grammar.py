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
The grammar of an answer: free reasoning, then exactly one action sentence.

With any model, an answer under this grammar contains an action and ends with it. The grammar format
is that of specdec.sampling.grammar; the sentences are those of `actions`.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from spec_vlm_nav.language.actions import ACTION_SENTENCES, STOP_SENTENCE
from specdec.errors import OptionsError

if TYPE_CHECKING:
    from specdec.sampling.grammar import Grammars

_LEAD = "The next action is "
_BEGINNING = "The next"
_STOP_BEGINNING = "I think I should stop because"
"""A sentence with this beginning is an action: its remaining fixed tokens take no time."""
_REST_OF_A_CHARACTER = 3  # tokens, at most


def _alternatives(sentences: list[str]) -> str:
    """Return a regular expression of exactly these sentences; common prefixes are shared."""
    if len(sentences) == 1:
        return _escaped(sentences[0])
    by_word = [
        (word, [sentence[len(word) :] for sentence in group])
        for word, group in groupby(sorted(sentences), key=lambda s: s.split(" ")[0])
    ]
    parts = [_escaped(word) + _alternatives_behind(rest) for word, rest in by_word]
    return parts[0] if len(parts) == 1 else "(" + "|".join(parts) + ")"


def _alternatives_behind(rest: list[str]) -> str:
    """Return the expression of the text after a word: nothing, or a blank and more."""
    more = [one[1:] for one in rest if one]
    return "" if not more else " " + _alternatives(more)


def _escaped(text: str) -> str:
    return "".join("\\" + c if c in r".\/()[]{}|*+?^$" else c for c in text)


MOVES = _alternatives([s[len(_LEAD) :] for s in ACTION_SENTENCES if s.startswith(_LEAD)])
"""Regular expression of the text after "The next action is "."""

_FREELY = rf"""
start: move MOVE | stop STOP
move[lazy]: /((.|\n)*([.!?][ \t]|\n)[ \t\n]*)?{_BEGINNING}/
stop[lazy]: /((.|\n)*([.!?][ \t]|\n)[ \t\n]*)?{_STOP_BEGINNING}/
MOVE: /{_escaped(_LEAD.removeprefix(_BEGINNING))}{MOVES}/
STOP: /{_escaped(STOP_SENTENCE.removeprefix(_STOP_BEGINNING))}/
"""
"""Any sentences that do not begin like an action, then one action sentence."""

_AT_ONCE = rf"""
start: /\n({_LEAD}{MOVES}|{_escaped(STOP_SENTENCE)})/
"""
"""An action sentence, on a line of its own."""


_BEFORE = rf"""
start: ACTION rest
ACTION: /({_LEAD}{MOVES}|{_escaped(STOP_SENTENCE)})/
rest: /([ \n](.|\n)*)?/
"""
"""An action sentence, then any text."""


def action_grammar(grammars: Grammars, max_new_tokens: int, action_first: bool = False) -> str:
    """
    Return the grammar of answers that reach an action within max_new_tokens.

    Reasoning that leaves no room for the action is cut off. Raises OptionsError if max_new_tokens
    is too small for an action, and ModelError for a model without grammar support.
    """
    if action_first:
        return _BEFORE
    longest = grammars.compile(_AT_ONCE).longest()
    needed = None if longest is None else longest + _REST_OF_A_CHARACTER
    if needed is None or needed > max_new_tokens:
        raise OptionsError(
            f"an action takes up to {needed or 'very many'} tokens of this model: "
            f"raise max_new_tokens ({max_new_tokens}), or switch the grammar off"
        )
    return f"{_FREELY}%%after {max_new_tokens - needed}\n{_AT_ONCE}"
