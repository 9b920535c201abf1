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
Possible readings of a text: by its letters, by their looks, and with typing variants resolved.

Pure. Invisible characters, terminal colours and markup are removed. Look-alikes of letters (Unicode
confusables, by the package confusable_homoglyphs) are replaced by the letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
import html
import re
import unicodedata

from confusable_homoglyphs import confusables

LOOKED_AT = 1000  # characters examined at the beginning, and as many at the end
READ = 20_000  # the same before blanks and invisible characters are removed

_ESCAPES = re.compile(  # terminal escapes: colours, titles, links; also without their first byte
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b[ -/]*[0-~]|\[[0-9;]{1,20}m"
)
_MARKUP = re.compile(r"<\|[^|<>]*\|>|</?[a-zA-Z][^<>]{0,200}>")  # special tokens and HTML tags
_BLANKS = re.compile(r"[^\S\n]*\n\s*|\s+")
_APOSTROPHES = re.compile("[’‘´`ʼ＇]")
_SPELLED = re.compile(r"(?<![^\W_])(?:[^\W\d_][\W_]{1,5}){2,200}[^\W\d_](?![^\W_])")
_DRAWN_OUT = re.compile(r"([^\W\d_])\1{2,}")
_BEGGED = re.compile(r"\b(?:please|pls|plz|bitte|por favor|robot|now|wait|hey|ok|okay)\s+(\w+)[\s!.]*$")
_AROUND = " \"“”„«»*_!.'"
_NAMED = frozenset(["say", "says", "saying", "read", "reads", "reading", "sign", "word", "named", "called"])
# Digits and signs used in place of letters.
_LEET: dict[int, int | str] = {**str.maketrans("01345789@$€!|+", "oieastbgaseiit")}
_LEET_L = {**_LEET, ord("1"): "l", ord("|"): "l"}
# Look-alikes that are missing in Unicode's table.
_MORE_ALIKE = {"ᔕ": "s", "ᔖ": "s", "§": "s", "†": "t", "‡": "t", "ʇ": "t", "ɟ": "f"}
# Letters that are drawn as blanks.
_BLANK_LETTERS = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_FOLDED: dict[int, str | None] = {
    ord(letter): plain
    for letter, plain in (
        *zip("ıøłđŧħ", "ioldth", strict=True),
        ("æ", "ae"),
        ("œ", "oe"),
        ("ß", "ss"),
        ("þ", "th"),
        ("ð", "d"),
        # Arabic letters of Persian and Urdu keyboards; and the tatweel, which lengthens a word
        *zip("کیىہھة", "كييههه", strict=True),
        ("ـ", None),
    )
}
_MARKS_OF = ("COMBINING", "VARIATION", "ARABIC", "HEBREW", "MONGOLIAN FREE")
_RIGHT_TO_LEFT = "\u202e"
_LATIN_NAME = re.compile(
    r"(?:LATIN LETTER SMALL CAPITAL|(?:LATIN|TAG LATIN) (?:SMALL|CAPITAL) LETTER"
    r"|MODIFIER LETTER (?:SMALL|CAPITAL)|REGIONAL INDICATOR SYMBOL LETTER"
    r"|(?:(?:NEGATIVE|CROSSED) )*(?:SQUARED|CIRCLED|PARENTHESIZED) LATIN (?:SMALL|CAPITAL) LETTER)"
    r" ([A-Z])(?: WITH .*)?"
)


def readings(text: str) -> Iterator[str]:
    """Yield the possible readings of a text, each once: lower case, no accents."""
    seen = set()
    for way in _as_shown(text):
        for reading in _as_letters(way):
            if reading not in seen:
                seen.add(reading)
                yield reading


def _as_shown(text: str) -> Iterator[str]:
    """Yield a text without invisible characters: removed, and replaced by blanks."""
    text = _ends(text.strip(), READ)
    if "\x1b" in text or "\x9b" in text or "\x9d" in text or "[" in text:
        text = _ESCAPES.sub("", text)
    if "<" in text or "&" in text:
        text = html.unescape(_MARKUP.sub(" ", text))
    hidden = {c for c in set(text) if _is_hidden(c)}
    ways = ["".join(instead if c in hidden else c for c in text) for instead in ("", " ")]
    for way in ways if hidden else ways[:1]:
        lines = _ends(_BLANKS.sub(_one_blank, way).strip(), LOOKED_AT)
        yield lines
        yield lines.replace("\n", " ")  # a phrase may be broken over lines
    if any(0xE0041 <= ord(c) <= 0xE007A for c in hidden):  # Unicode tags: hidden letters
        told = (_latin(c) or ("" if c in hidden else c) for c in text)
        yield _ends("".join(told), LOOKED_AT)
    if _RIGHT_TO_LEFT in hidden:
        yield _ends(ways[0], LOOKED_AT)[::-1]


def _as_letters(way: str) -> Iterator[str]:
    """Yield a text with its own letters, and with the letters that they look like."""
    plain = fold(way)
    yield from _as_meant(plain, way)
    if not plain.isascii() or not way.isascii():
        for alike in (fold(_alike(way)), fold(_alike(plain))):
            yield from _as_meant(alike, way)
            plain = alike
    if any(c.isdigit() or c in "@$€!|+" for c in plain):
        yield from (plain.translate(_LEET), plain.translate(_LEET_L))


def _as_meant(plain: str, way: str) -> Iterator[str]:
    """Yield a text with stretched and spelled-out words normalised, and its final stop cries."""
    plain = _DRAWN_OUT.sub(r"\1", plain)
    spelled = _SPELLED.sub(_joined, plain)
    yield spelled
    if spelled != plain:
        yield plain
    if found := _BEGGED.search(spelled):
        yield found[1]  # "go to the door please stop"
    if cry := _emphasised(way):
        yield cry


def _emphasised(way: str) -> str:
    """Return a last word in capitals after other words ("go to the door STOP"), or ""."""
    *before, last = way.split() or [""]
    last = last.strip(_AROUND)
    if not before or not last.isalpha() or not last.isupper() or len(last) < 3:
        return ""
    if before[-1].strip(_AROUND).lower() in _NAMED or not any(map(str.islower, before)):
        return ""
    return fold(last)


def _joined(found: re.Match[str]) -> str:
    return re.sub(r"[\W_]", "", found.group())


def _ends(text: str, most: int) -> str:
    return text if len(text) <= 2 * most else f"{text[:most]}\n{text[-most:]}"


def _one_blank(found: re.Match[str]) -> str:
    """Return one blank for several; a line break is kept, as it ends a sentence."""
    return "\n" if "\n" in found.group() else " "


@lru_cache(4096)
def _is_hidden(c: str) -> bool:
    kind = unicodedata.category(c)
    return kind in ("Cf", "Co", "Cn", "Cs") or c in _BLANK_LETTERS or (kind == "Cc" and not c.isspace())


def fold(text: str) -> str:
    """Return a text in lower case without accents, for comparing phrases."""
    text = unicodedata.normalize("NFKC", text)[: 4 * LOOKED_AT].casefold()
    if text.isascii():
        return _APOSTROPHES.sub("'", text)
    letters = (c for c in unicodedata.normalize("NFKD", text) if not _is_accent(c))
    text = unicodedata.normalize("NFC", "".join(letters)).translate(_FOLDED)
    return _APOSTROPHES.sub("'", text)


@lru_cache(4096)
def _is_accent(c: str) -> bool:
    kind = unicodedata.category(c)
    return kind == "Me" or (kind == "Mn" and unicodedata.name(c, "COMBINING").startswith(_MARKS_OF))


def _alike(text: str) -> str:
    return "".join(c if c.isascii() else _MORE_ALIKE.get(c) or _latin(c) or c for c in text)


@lru_cache(4096)
def _latin(c: str) -> str:
    """Return the Latin letter that a character looks like, or ""."""
    if found := _LATIN_NAME.fullmatch(unicodedata.name(c, "")):
        return found[1].lower()
    alike = [each["c"] for each in confusables.confusables_data.get(c, ())]
    for each in alike:
        if len(each) == 1 and each.isascii() and each.isalpha():
            return str(each)
    for each in alike:
        if len(each) == 1 and (found := _LATIN_NAME.fullmatch(unicodedata.name(each, ""))):
            return found[1].lower()
    return ""
