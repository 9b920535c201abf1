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
Splits a sentence with several instructions: "go to the red table, then the blue box".

It splits at words like "then" between two actions, in English, German, French, Spanish and Chinese.
A part that only names a place takes the verb of the previous part. In doubt the sentence stays
whole: conditions ("when the door opens, then go in"), quoted text, "now and then", "since then",
and sentences with a part that means stop.
"""

from __future__ import annotations

import re

from spec_vlm_nav.language.stop_words import is_stop

MOST_PARTS = 20

_AFTERWARDS = (
    "then|after that|afterwards|and after that|and afterwards|finally|and finally|"
    "dann|danach|anschließend|anschliessend|zum schluss|"
    "puis|ensuite|après cela|apres cela|enfin|"
    "luego|después|despues|entonces|por último|por ultimo|finalmente"
)
_AND = "and|und|et|y"
_COMMA = rf"[,;.]\s*(?:(?:{_AND})\s+)?(?:{_AFTERWARDS})\b(?!\s+(?:de|of)\b)\s*,?\s*"
_JOINED = rf"\s+(?:{_AND})\s+(?:{_AFTERWARDS})\b(?!\s+(?:de|of)\b)\s*,?\s*"
_VERBS = (
    "go|walk|drive|move|turn|find|look|return|come|head|navigate|follow|approach|circle|wait|"
    "search|visit|proceed|continue|face|rotate|spin|enter|leave|pass|cross"
)
_BARE = rf"\s+then\s+(?=(?:{_VERBS}|to|the|a|an|back)\b)"
_CHINESE = r"[，,。；;]?\s*(?:然后|然後|接着|接著|随后|隨後)(?:再)?[，,]?\s*"
_SPLIT = re.compile(f"{_COMMA}|{_JOINED}|{_BARE}|{_CHINESE}", re.IGNORECASE)
_QUOTED = re.compile('"[^"]*"|“[^”]*”|„[^“”]*[“”]|«[^»]*»')
_CONDITION = re.compile(
    r"\b(?:if|when|once|whenever|until|unless|as soon as|wenn|falls|sobald|bis|si|quand|lorsque|"
    r"cuando|hasta que|dès que)\b|如果|当|當|等到",
    re.IGNORECASE,
)
_NOT_HERE = re.compile(
    r"\b(?:now|every now|since|by|until|till|from|back|even|just|only|but|right)$", re.IGNORECASE
)


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DETERMINERS = _set(
    "the a an this that those these my your der die das den dem ein eine einen einem einer le la "
    "les un une el los las una"
)
_PREPOSITIONS = _set("to towards zum zur zu nach à a au aux vers al hacia hasta")


def split(text: str) -> list[str]:
    """
    Return the instructions in a sentence, in order; most sentences have one.

    A sentence that means stop is returned whole: it must act at once.
    """
    whole = " ".join(text.split())
    if not whole or is_stop(whole):
        return [whole]
    kept = [m.span() for m in _QUOTED.finditer(whole)]
    cuts = [
        m
        for m in _SPLIT.finditer(whole)
        if not any(a < m.end() and m.start() < b for a, b in kept)
        and not _NOT_HERE.search(whole[: m.start()])
    ]
    parts, begin = [], 0
    for cut in cuts:
        if _CONDITION.search(whole[begin : cut.start()]):
            continue
        parts.append(whole[begin : cut.start()])
        begin = cut.end()
    parts = [p.strip(" ,;.") for p in (*parts, whole[begin:])]
    if len(parts) < 2 or len(parts) > MOST_PARTS or not all(parts) or any(map(is_stop, parts)):
        return [whole]
    for i in range(1, len(parts)):
        parts[i] = _with_verb(parts[i], parts[i - 1])
    return parts


def _with_verb(part: str, before: str) -> str:
    """Return a part that only names a place with the verb of the previous part."""
    first = _word(part.split()[0])
    words = before.split()
    for group in (_DETERMINERS, _PREPOSITIONS - _DETERMINERS):
        if first in group:
            place = next((i for i, w in enumerate(words) if _word(w) in group), 0)
            return " ".join((*words[:place], part))
    return part


def _word(text: str) -> str:
    return text.casefold().strip(".,;:!?")
