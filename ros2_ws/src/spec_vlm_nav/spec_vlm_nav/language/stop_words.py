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
Whether an instruction means: stop. A closed list of phrases in five languages, no model.

A false stop is cheap, a missed one is not. So after a word such as "stop" nearly anything may
follow ("stop the robot", "stop moving towards me"), and it is still a stop; only a place or a
condition behind it ("stop at the door", "stop when you see the chair") makes an instruction of
it. Words in front of it must be polite or empty ones: "don't stop" and "find the bus stop" are
no stops. Case, accents, punctuation and politeness do not matter.
"""

from __future__ import annotations

import re
import unicodedata

from spec_vlm_nav.language.stop_phrases import (
    ADVERBS,
    CLOSED_HEADS,
    FILLERS,
    NO_PLACES,
    OPEN_HEADS,
    OPENERS,
    PLACES,
)

LOOKED_AT = 400  # characters; whoever repeats "stop" for longer has said it by then
READ = 20_000  # characters, blanks and invisible ones among them


SYMBOLS = '🛑⛔✋🚫'

_ZH_OPENER = re.split(
    r'\|',
    '请|請|快点|快點|快|立刻|立即|马上|馬上|现在|現在|机器人|機器人|机器狗|機器狗|小狗|你|给我|給我|'
    '麻烦|麻煩|先|赶紧|趕緊|都|就|喂|嘿|不|不不|好了|好|全部|我说|我說',
)
_ZH_HEAD = re.split(
    r'\|',
    '紧急停止|緊急停止|紧急停车|緊急停車|紧急制动|緊急制動|急停|停下来|停下來|停止|停下|停住|停一下|'
    '停一停|停车|停車|停机|停機|停|别动|別動|不要再动|不要再動|不要动|不要動|不许动|不許動|不准动|不準動|'
    '别再动|別再動|别走|別走|不要再走|不要走|不要再前进|不要再前進|不要前进|不要前進|站住|站着别动|'
    '站著別動|站着|站著|等一下|等一等|等等|等会儿|等会|等會|稍等|且慢|慢着|慢著|等|暂停|暫停|取消|中止|'
    '终止|終止|放弃|放棄|止步|立定|原地不动|原地不動|原地待命|待命|保持不动|保持不動|静止|靜止|够了|夠了|'
    '刹车|剎車|煞车|煞車|冻结|凍結',
)
_ZH_TAIL = re.split(
    r'\|',
    '移动|移動|运动|運動|前进|前進|行走|走动|走動|走路|行动|行動|转动|轉動|转弯|轉彎|动作|動作|一切|所有|'
    '任务|任務|指令|执行|執行|机器人|機器人|现在|現在|马上|馬上|立刻|立即|在这里|在這裡|在这儿|在這兒|在原地|'
    '原地|这里|這裡|那里|那裡|吧|了|啊|呀|啦|呢|哦|喔|的|你|我|一会儿|一会|一會',
)
_BLANKS = re.compile(r'\s+')
_CHINESE = re.compile('[\u3400-\u9fff]')
_APOSTROPHES = re.compile('[’‘´`]')
_POLITE = re.compile(r"\b(?:please|pls|plz|bitte|por favor|s['’ ]?il (?:te|vous) plait|stp|svp)\b")
_TOKENS = re.compile(r'<\|[^|<>]*\|>')  # of a model's vocabulary: nothing that anybody says
_CLAUSE_ENDS = re.compile(r'[.!?;:,\n。！？；：，、…—–¡¿"“”„«»()\[\]{}*_~|/\\]+')
_WORDS = re.compile(r'[a-z0-9]+')
_DRAWN_OUT = re.compile(r'([a-z])\1{2,}')
_SPELLED = re.compile(r'\b(?:[a-z][ .\-]){2,}[a-z]\b')


def is_stop(text: str) -> bool:
    """Return whether an instruction means nothing but: stop."""
    # Blanks and invisible characters take no room; these may stand within a word or between two.
    shown = _BLANKS.sub(_one_blank, text.lstrip()[:READ])
    hidden = {c for c in set(shown) if unicodedata.category(c) == 'Cf'}
    if not hidden:
        return _means_stop(shown[:LOOKED_AT])
    ways = (''.join(instead if c in hidden else c for c in shown) for instead in ('', ' '))
    return any(_means_stop(_BLANKS.sub(_one_blank, way).lstrip()[:LOOKED_AT]) for way in ways)


def _one_blank(found: re.Match[str]) -> str:
    """Return one blank for many; a line's end is the end of a clause."""
    return '\n' if '\n' in found.group() else ' '


def _means_stop(said: str) -> bool:
    if any(symbol in said for symbol in SYMBOLS) and not _WORDS.search(_plain(said)):
        return True
    plain = _plain(said)
    if _CHINESE.search(plain):
        return _is_chinese_stop(plain)
    clauses = [words for part in _CLAUSE_ENDS.split(plain) if (words := _words(part))]
    while len(clauses) > 1 and not _after_openers(clauses[0]):
        del clauses[0]
    if not clauses:
        return False
    # A cry at the end counts, whatever was said before it.
    shouted = plain.rstrip().endswith('!') and len(clauses) > 1
    return _is_stop_clause(clauses[0]) or (shouted and _is_stop_clause(clauses[-1]))


def _plain(text: str) -> str:
    """Return lower case without accents; drawn-out and spelled words are as they are meant."""
    text = unicodedata.normalize('NFKC', text).casefold()
    text = _APOSTROPHES.sub("'", text)
    letters = (c for c in unicodedata.normalize('NFD', text) if not unicodedata.combining(c))
    text = unicodedata.normalize('NFC', ''.join(letters)).replace('ß', 'ss')
    text = _POLITE.sub(' ', _TOKENS.sub(' ', text))
    text = _SPELLED.sub(lambda found: re.sub(r'[ .\-]', '', found.group()), text)
    return _DRAWN_OUT.sub(r'\1', text)


def _words(clause: str) -> list[str]:
    return _WORDS.findall(clause.replace("n't", 'nt'))


def _begins(words: list[str], phrases: tuple[tuple[str, ...], ...]) -> int:
    """Return how many words the longest of the phrases takes at the beginning; 0: none."""
    return next((len(p) for p in phrases if tuple(words[: len(p)]) == p), 0)


def _after(words: list[str], phrases: tuple[tuple[str, ...], ...]) -> list[str]:
    """Return the words behind any number of phrases."""
    while count := _begins(words, phrases):
        words = words[count:]
    return words


def _after_openers(words: list[str]) -> list[str]:
    return _after(words, OPENERS)


def _is_stop_clause(words: list[str]) -> bool:
    """Return whether polite words and then a stop are all there is."""
    # An opener may begin like a head ("no" and "no moving"): any place to go on from counts.
    while True:
        if _is_stop_here(words):
            return True
        count = _begins(words, OPENERS)
        if not count:
            return False
        words = words[count:]


def _is_stop_here(words: list[str]) -> bool:
    closed = _begins(words, CLOSED_HEADS)
    if closed and not _after(words[closed:], FILLERS) and words[:closed] != ['no']:
        return True
    count = _begins(words, OPEN_HEADS)
    if not count:
        return False
    rest = words[count:]
    while rest:
        if _begins(rest, NO_PLACES):
            return True
        if rest[0] in ADVERBS:
            rest = rest[1:]
            continue
        if count := _begins(rest, FILLERS):
            rest = rest[count:]
            continue
        return rest[0] not in PLACES or len(rest) == 1
    return True


def _is_chinese_stop(text: str) -> bool:
    """Return whether the first clause that says something is a stop, or a cry at the end is."""
    clauses = [c for part in _CLAUSE_ENDS.split(text) if (c := ''.join(part.split()))]
    while len(clauses) > 1 and _read(clauses[0])[0]:
        del clauses[0]
    if not clauses:
        return False
    shouted = text.rstrip().endswith(('!', '！'))
    return _read(clauses[0])[1] or (shouted and _read(clauses[-1])[1])


def _read(clause: str) -> tuple[bool, bool]:
    """
    Return whether polite words alone make up a clause, and whether such words and then a stop do.

    A stop is one head or several, any number of tails behind each. Words overlap, so that a
    regular expression tries them in exponentially many ways; here every place is visited once.
    """
    polite, stopped = {0}, set[int]()
    for at in range(len(clause)):
        if at in polite:
            polite |= _ends(clause, at, _ZH_OPENER)
        if at in polite or at in stopped:
            stopped |= _ends(clause, at, _ZH_HEAD)
        if at in stopped:
            stopped |= _ends(clause, at, _ZH_TAIL)
    return len(clause) in polite, len(clause) in stopped


def _ends(clause: str, at: int, words: list[str]) -> set[int]:
    """Return where the words end that begin there."""
    return {at + len(word) for word in words if clause.startswith(word, at)}
