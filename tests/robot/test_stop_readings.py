"""A stop is a stop however it is written: look-alikes, colours, spelling, invisible characters, repetition."""

# ruff: noqa: E501 (the phrases of one kind stand on one line)

import time
import unicodedata

import pytest
from confusable_homoglyphs import confusables
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_vlm_nav.language.stop_words import is_stop

WRITTEN = """
ѕтор|ЅТОР|ꜱᴛᴏᴘ|ꓢꓔꓳꓑ|𝓼𝓽𝓸𝓹|𝕊𝕋𝕆ℙ|ⓢⓣⓞⓟ|🆂🆃🅾🅿|🅂🅃🄾🄿|🇸🇹🇴🇵|ＳＴＯＰ|ˢᵗᵒᵖ|sтοp|ΗΑLТ|hаlt|аbort|Ŝţøp|st0p|5T0P|$top
\x1b[31mstop\x1b[0m|\x1b[1;31mS\x1b[0mTOP|\x1b[38;5;196mSTOP|[31mstop[0m|\x9b31mstop|\x1b]0;title\x07stop|\x1b(Bstop
S,T,O,P|s t o p|s.t.o.p.|S-T-O-P|s_t_o_p|s/t/o/p|S. T. O. P.|s · t · o · p|h a l t|с т о п|S T O P now
s̶t̶o̶p̶|s̲t̲o̲p̲|S⃣T⃣O⃣P⃣|stóp|s\u200bt\u2060o\ufeffp|s\u034ft\u034fop|\u202epots|\u2800stop|stop\u3164|s\x00t\x00o\x00p
sstoopp|stttttop|stopstopstop|STOPSTOP|stop.stop.stop|<b>STOP</b>|**STOP**|_stop_|“STOP”|(stop)|[STOP]|&#83;TOP|-- stop --
go to the door. STOP|find the red ball stop stop stop|STOP a person at the door|stop an intruder|go to the door; stop
go to the door STOP|go to the door please stop|go to the door — STOP|go to the door, stop|go to the door (stop)
Go to the door. Turn left. Stop. Find the chair.|walk on. 停！|turn left. 🛑|stop no matter what|look here: STOP|find it. стой
"""
NOT = """
unstoppable|an unstoppable force|stopwatch|find the stopwatch|the bus stop|find the stop sign|go to the stoplight|nonstop
find the sign that says STOP|find the sign “stop”|stopover city|stop at the door|ѕtop at the door|Ｓｔｏｐ at the door
\x1b[31mstop\x1b[0m at the door|s t o p at the door|s\u200btop at the door|go to the door. Then stop at the table.|a.t.o.p
go to room s.t.|find the top shelf|find the spot|find the shop|go to the workshop and stop|go to the table, then stop
don't stop. Go on.|Never stop|a stop|find the laptop|stop before the 5 tables|find box 5t0
stop in 5 metres|walk until the stop line|go past the truck stop|look at the halt sign, then go on|un-stop-able
"""
HEADS = (
    "stop",
    "halt",
    "freeze",
    "abort",
    "don't move",
    "стой",
    "fermati",
    "dur",
    "止まれ",
    "멈춰",
    "رکو",
    "रुको",
)
INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\u061c\u180e\u2063\U000e0001\u3164\u2800\x00\x08\ufe0f\u0336\u0301"


def told(text):
    return [each for line in text.strip().splitlines() for each in line.split("|")]


@pytest.mark.parametrize("text", told(WRITTEN))
def test_a_stop_is_one_however_it_is_written(text):
    assert is_stop(text)


@pytest.mark.parametrize("text", told(NOT))
def test_what_is_no_stop_is_none_however_it_is_written(text):
    assert not is_stop(text)


def looks_like(letter):
    """Characters that Unicode's table of confusables draws like a letter, alone."""
    found = {each["c"] for each in confusables.confusables_data.get(letter, ()) if len(each["c"]) == 1}
    fonts = {chr(base + ord(letter) - 97) for base in (0x1D41A, 0x1D4B6, 0x1D552, 0x1D5BA, 0xFF41, 0x24D0)}
    return sorted(c for c in found | fonts | {letter, letter.upper()} if unicodedata.category(c) != "Cn")


ALIKE = {letter: looks_like(letter) for letter in "stophalfrezb"}
seldom = settings(max_examples=60, deadline=None)


@seldom
@given(word=st.sampled_from(("stop", "halt", "freeze", "abort")), data=st.data())
def test_any_look_alikes_of_its_letters_make_a_stop(word, data):
    assert is_stop("".join(data.draw(st.sampled_from(ALIKE[letter]), letter) for letter in word))


@seldom
@given(
    head=st.sampled_from(HEADS),
    times=st.integers(1, 5),
    between=st.sampled_from((" ", ", ", "! ", ". ", " - ", "\n", "… ", "、")),
    around=st.sampled_from(
        ("{}", "{}!!!", "«{}»", "  {}  ", "({})", "¡{}!", "*{}*", "{}?!", "...{}", "{} 🛑", "\t{}\r\n")
    ),
    upper=st.booleans(),
    wide=st.booleans(),
    data=st.data(),
)
@pytest.mark.slow
def test_case_width_punctuation_repetition_and_invisible_characters_keep_a_stop(
    head, times, between, around, upper, wide, data
):
    said = around.format(between.join([head] * times))
    said = said.upper() if upper else said
    if wide:
        said = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" and c != "'" else c for c in said)
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(said)))
        said = said[:place] + data.draw(st.sampled_from(INVISIBLE)) + said[place:]
    assert is_stop(said)


@seldom
@given(
    text=st.sampled_from(
        ("stop at the door", "find the bus stop", "go to the stopwatch", "don't stop", "стой у двери")
    ),
    upper=st.booleans(),
    data=st.data(),
)
def test_the_same_changes_make_no_stop_of_an_instruction(text, upper, data):
    said = text.upper() if upper else text
    for _ in range(data.draw(st.integers(0, 1))):  # more of them may cut a word into letters
        place = data.draw(st.integers(8, len(said) - 1))
        said = said[:place] + data.draw(st.sampled_from("\u200b\u2060\ufeff\u00ad\u0336")) + said[place:]
    assert not is_stop(said)


@pytest.mark.slow
@seldom
@given(before=st.text(max_size=300), after=st.text(max_size=300))
def test_a_sentence_that_means_stop_is_found_anywhere_in_any_text(before, after):
    # An unfinished escape or tag swallows what follows, on a screen as well.
    before = "".join(c for c in before if c not in "\x1b\x9b\x9d\x90[<&\u202e")
    assert is_stop(f"{before}\nstop\n{after}") or any(c in after for c in "\x1b\x9b\x9d<&")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "a. ",
        "ﷺ",
        "s t ",
        "\x1b[",
        "<a",
        "[1;",
        "é,",
        "stop at the ",
        "ا ل ",
        "不",
        "停原地",
        "S_",
        "1a ",
        "aab ",
        "&amp",
        "\u200b",
        "🛑a",
        "ก็",
        "stop,at ",
    ],
)
def test_no_text_takes_long(text):
    is_stop(text)  # tables of characters are made once
    began = time.process_time()
    is_stop(text * 20_000)
    assert time.process_time() - began < 0.25
