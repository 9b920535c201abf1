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
Decides whether an instruction means stop, by the phrases of about fifty languages.

The phrases are in `stop_phrases.ini`.

A false stop is cheap, a missed one is not. So nearly anything may follow a word such as "stop"
("stop the robot", "stop moving towards me"). Only a place or a condition after it ("stop at the
door", "stop when you see the chair") makes it an instruction. Words before it must be polite or
empty: "don't stop" and "find the bus stop" are not stops. A stop in any sentence of a text counts.
Case, accents, punctuation, politeness, invisible characters, look-alikes of letters and terminal
colours do not matter.

Every entry point for instructions calls `is_stop`: topics, actions, pages, missions, commands.
"""

from __future__ import annotations

import configparser
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
import re

from spec_vlm_nav.language.stop_readings import fold, LOOKED_AT, readings

PHRASES = configparser.ConfigParser(interpolation=None, delimiters="=", comment_prefixes="#")
PHRASES.read_string(Path(__file__).with_name("stop_phrases.ini").read_text(encoding="utf-8"))
SYMBOLS = "🛑⛔✋🚫🤚🖐⏹⏸🙅"

_POLITE = re.compile(r"\b(?:please|pls|plz|bitte|por favor|s['’ ]?il (?:te|vous) plait|stp|svp)\b")
_SENTENCE_ENDS = re.compile("[.!?;\n。！？；…¡¿।॥۔؟؛։።။៕]+")
_CLAUSE_ENDS = re.compile(
    r"[,:、，：،·•—–|/\\()\[\]{}=>»«~]+|(?<=\s)-+(?=\s)"
    r"|\b(?:but|aber|mais|pero)\b|\band(?= do(?:n't|nt| not) move\b)"
)
# Vowel signs of South and South-East Asian scripts, which Python's \w does not match.
_LETTER = r"[^\W_]|[\u0900-\u0963\u0966-\u0dff\u0e00-\u0eff\u1000-\u1049\u1780-\u17d3]"
_WORDS = re.compile(f"(?:{_LETTER})+")
_AND_THEN = frozenset(["and", "then", "und", "dann", "et", "puis", "y", "luego", "e", "poi", "и", "потом"])
_JOINS = re.compile(rf"\W*(?:(?:{'|'.join(sorted(_AND_THEN))})\b\W*)+")
_NEGATIONS = frozenset(["inte", "ikke", "niet"])  # after the verb: "stanna inte"
# After these heads "a" and "an" are English articles ("stop a person"), unless a foreign one follows.
_ENGLISH_HEADS = {"stop", "halt", "freeze", "abort", "cancel", "pause", "wait", "emergency"}
_ENGLISH_HEADS |= {"dont", "don", "do", "full", "hold", "stand", "stay", "keep"}


def is_stop(text: str) -> bool:
    """Return whether an instruction means stop."""
    return any(_means_stop(way) for way in readings(text))


# -- matching of words

_REPEATED = re.compile(r"(\w{3,20}?)\1+")
_DOUBLED = re.compile(r"([a-zа-я])\1")
_CRIES: set[str] = set()  # open heads of one word; filled below
_IN_HEADS: set[str] = set()  # all words of heads

Phrases = dict[str, list[tuple[str, ...]]]  # by their first word, longest first


def _told(key: str) -> list[str]:
    """Return the phrases of this kind of every language written with blanks."""
    return [each.get(key, "") for each in PHRASES.values() if "tails" not in each]


def _index(kind: str) -> Phrases:
    found: Phrases = {}
    for table in _told(kind):
        for phrase in table.split("|"):
            words = tuple(_WORDS.findall(fold(phrase).replace("n't", "nt")))
            if words and words not in found.setdefault(words[0], []):
                found[words[0]].append(words)
    for each in found.values():
        each.sort(key=len, reverse=True)
    return found


@lru_cache(256)
def _words(clause: str) -> tuple[str, ...]:
    return tuple(map(_once, _WORDS.findall(clause.replace("n't", "nt"))))


@lru_cache(4096)
def _once(word: str) -> str:
    """Return "stop" for "stopstop" and "sttoop"."""
    found = _REPEATED.fullmatch(word)
    once = found[1] if found else _DOUBLED.sub(r"\1", word)
    return once if once in _CRIES and word not in _IN_HEADS else word


_OPEN, _CLOSED = _index("heads"), _index("closed")
_OPENERS, _FILLERS = _index("openers"), _index("fillers")
_NO_PLACES = _index("no_places")
_PLACES = {word for places in _told("places") for word in _WORDS.findall(fold(places))}
_ADVERBS = set(" ".join(_told("adverbs")).split())
_FOREIGN_ARTICLES = {
    "a": " ".join(PHRASES[each]["articles"] for each in ("French", "Spanish", "Italian")).split(),
    "an": PHRASES["German"]["articles"].split(),
    "no": [],
}
_CRIES.update(words[0] for each in _OPEN.values() for words in each if len(words) == 1)
for _heads in (_OPEN, _CLOSED):
    _IN_HEADS.update(word for each in _heads.values() for words in each for word in words)
_ANY_SPACED = frozenset(("no", "a"))  # closed heads that do not mean stop on their own


def _means_stop(plain: str) -> bool:
    plain = _POLITE.sub(" ", plain[: 4 * LOOKED_AT])
    known = any(word in _OPEN or word in _CLOSED for word in _words(plain))
    if not known and not _SCRIPTS.search(plain) and not any(s in plain for s in SYMBOLS):
        return False
    if joins := _JOINS.match(plain):  # "and stop!": at the beginning they join nothing
        plain = plain[joins.end() :]
    sentences = [part for part in _SENTENCE_ENDS.split(plain) if part.strip()]
    if any(_sentence_stops(sentence) for sentence in sentences):
        return True
    words = _words(plain)
    # "find the red ball stop stop stop"
    if any(a in _CRIES and b in _CRIES for a, b in pairwise(words)):
        return True
    # A stop clause with an exclamation mark at the end counts, whatever precedes it.
    clauses = _clauses(sentences[-1]) if sentences else []
    return plain.rstrip().endswith("!") and len(clauses) > 1 and _is_stop_clause(clauses[-1])


def _clauses(sentence: str) -> list[str]:
    return [part for part in _CLAUSE_ENDS.split(sentence) if _WORDS.search(part)]


def _sentence_stops(sentence: str) -> bool:
    """Return whether a sentence begins with a stop, or has a bare stop after a comma."""
    clauses = _clauses(sentence)
    if not clauses:
        return any(symbol in sentence for symbol in SYMBOLS)
    while len(clauses) > 1 and _is_polite_clause(clauses[0]):
        del clauses[0]
    if _is_stop_clause(clauses[0]):
        return True
    return any(_is_bare_stop(clause) for clause in clauses[1:])


def _is_polite_clause(clause: str) -> bool:
    words = _words(clause)
    return _behind(words, 0, _OPENERS) == len(words) or _reads_unspaced(clause)[0]


def _is_stop_clause(clause: str) -> bool:
    """Return whether a clause consists of polite words and then a stop."""
    words, at = _words(clause), 0
    # An opener may begin like a head ("no" and "no moving"): try a head after each opener.
    while True:
        if _stops_here(words, at):
            return True
        count = _begins(words, at, _OPENERS)
        if not count:
            return _reads_unspaced(clause)[1]
        at += count


def _is_bare_stop(clause: str) -> bool:
    """Return whether a clause is only a stop and a time: "…, stop now"; not "…, wait there"."""
    words = _words(clause)
    if words[0] in _AND_THEN:
        return False
    at = _behind(words, 0, _OPENERS)
    count = _begins(words, at, _OPEN)
    rest = words[at + count :]
    if count and all(word in _WHEN for word in rest):
        return True
    return _reads_unspaced(clause)[1]


_WHEN = frozenset(
    ["now", "right", "immediately", "at", "once", "jetzt", "sofort", "maintenant", "ahora", "ya"]
)


def _begins(words: tuple[str, ...], at: int, phrases: Phrases) -> int:
    """Return the number of words of the longest phrase at a position; 0: none."""
    if at >= len(words):
        return 0
    fitting = (p for p in phrases.get(words[at], ()) if words[at : at + len(p)] == p)
    return len(next(fitting, ()))


def _behind(words: tuple[str, ...], at: int, *tables: Phrases) -> int:
    """Return the position after any number of phrases."""
    while count := max(_begins(words, at, phrases) for phrases in tables):
        at += count
    return at


def _stops_here(words: tuple[str, ...], at: int) -> bool:
    closed = _begins(words, at, _CLOSED)
    if closed and not (closed == 1 and words[at] in _ANY_SPACED):
        end = _behind(words, at + closed, _FILLERS, _CLOSED, _OPEN)
        if end == len(words):
            return True
    count = _begins(words, at, _OPEN)
    if not count:
        return False
    head, at = words[at], at + count
    while at < len(words):
        if words[at] in _NEGATIONS:
            return False
        if _begins(words, at, _NO_PLACES):
            return True
        if words[at] in _ADVERBS:
            at += 1
        elif count := _begins(words, at, _FILLERS):
            at += count
        else:
            return not _is_place(head, words[at : at + 2])
    return True


def _is_place(head: str, words: tuple[str, ...]) -> bool:
    """Return whether words after a head begin a place: "at the", "an der"; not "a person"."""
    if len(words) < 2 or words[0] not in _PLACES:
        return False
    return head not in _ENGLISH_HEADS or words[1] in _FOREIGN_ARTICLES.get(words[0], words)


# -- languages without blanks


def _parts(kind: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for table in (each[kind] for each in PHRASES.values() if "tails" in each):
        for word in table.split("|"):
            plain = "".join(_WORDS.findall(fold(word)))
            if plain:
                found.setdefault(plain[0], []).append(plain)
    return found


_HEAD_PARTS, _OPENER_PARTS, _TAIL_PARTS = _parts("heads"), _parts("openers"), _parts("tails")
_SCRIPTS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def _reads_unspaced(clause: str) -> tuple[bool, bool]:
    """
    Return whether a clause is only polite words, and whether it is polite words and then a stop.

    A stop is one or more heads, each with any number of tails. Words overlap, so a regular
    expression would try exponentially many splits; here every position is visited once.
    """
    if not _SCRIPTS.search(clause):
        return False, False
    clause = "".join(_WORDS.findall(clause))
    polite, stopped = {0}, set[int]()
    for at in range(len(clause)):
        if at in polite:
            polite |= _part_ends(clause, at, _OPENER_PARTS)
        if at in polite or at in stopped:
            stopped |= _part_ends(clause, at, _HEAD_PARTS)
        if at in stopped:
            stopped |= _part_ends(clause, at, _TAIL_PARTS)
    return len(clause) in polite, len(clause) in stopped


def _part_ends(clause: str, at: int, parts: dict[str, list[str]]) -> set[int]:
    """Return the end positions of all parts that begin at a position."""
    fitting = parts.get(clause[at], ())
    return {at + len(word) for word in fitting if clause.startswith(word, at)}
