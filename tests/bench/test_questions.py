"""Questions are read from files in the shared form, from plain text and from dataset rows: lines as benchmarks publish
them and odd ones are read as they stand, or their line is named.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from specnav.bench.data.questions import load_questions, questions_of_rows
from specnav.results.errors import EvaluationError

ONE = '{"question_id": 1, "turns": ["a"]}'


@pytest.fixture
def write(tmp_path):
    def write_(content, name="made_up.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_


@pytest.fixture
def load(write):
    return lambda content, name="made_up.jsonl": load_questions([write(content, name)])


def made(number, **more):
    return json.dumps({"question_id": number, "category": "rag", "turns": ["who?"], **more})


@pytest.mark.parametrize(
    "published",
    [
        [["Ada"]],  # from line 401 of Spec-Bench on
        [["Ada", "Ada Lovelace", "A. L."]],
        ["one", ""],  # MT-bench: no reference for the second turn
        ["one", ["two", "2"]],
        "text",
        [""],
        [],
        [[]],
        None,
    ],
)
def test_references_may_have_every_published_shape(load, published):
    assert load(made(401, reference=published))[0].question_id == "401"


def test_a_whole_file_of_changing_shapes_is_read(load):
    lines = [
        made(81, category="writing", turns=["first", "second"]),
        made(82, category="math", turns=["first", "second"], reference=["1", ""]),
        made(0, category="", reference=["x"]),
        "",
        made("HumanEval/0", category="code", turns=["\ndef f():\n    "], reference=["    return 1\n"]),
        made(481, reference=[["a", "b"]], documents=[1, None, {"k": 2.5}]),
        '{"turns": ["no category"], "question_id": 9}',
        '{"turns": ["null"], "question_id": 10, "category": null, "reference": null}',
    ]
    questions = load("\n".join(lines))
    assert [q.question_id for q in questions] == ["81", "82", "0", "HumanEval/0", "481", "9", "10"]
    assert questions[3].turns == ("\ndef f():\n    ",)
    assert questions[0].turns == ("first", "second") and questions[0].source == "made_up"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("tail", ["", "\n", "\n\n \t\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_a_byte_order_mark_change_nothing(load, end, tail, mark):
    text = made(1, turns=["a\r\nb "]) + "\n" + made(2) + tail
    first, second = load(mark + text.replace("\n", end).encode())
    assert first.turns == ("a\r\nb ",) and second.turns == ("who?",)


def test_a_byte_order_mark_is_no_part_of_plain_text(load):
    assert load(b"\xef\xbb\xbfone\r\ntwo\r\n", "plain.txt")[0].turns == ("one",)


def test_separators_inside_a_text_end_no_line(load):
    text = "a\u2028b\u2029c\x85d\x1ce\x0bf"
    raw = '{"question_id": 1, "turns": ["a\u2028b\u2029c\x85d"]}'
    questions = load(f"{raw}\n{made(2, turns=[text])}\n")
    assert [q.turns for q in questions] == [("a\u2028b\u2029c\x85d",), (text,)]


@pytest.mark.parametrize("name", ["q.JSONL", "q.ndjson", "q.json"])
def test_other_endings_of_json_lines(load, name):
    assert load(made(7), name)[0].turns == ("who?",)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ('{"question_id": 2, "turns": ["\\ude00\\ud83d"]}', "invalid utf-16 surrogate pair"),
        ('{"question_id": 2, "turns": ["a"], "reference": 18}', r"got `int` - at `\$.reference`"),
        ('{"question_id": 2, "turns": ["a"], "reference": [18]}', r"got `int` - at `\$.reference\[0\]`"),
        ('{"question_id": 2, "turns": ["a"], "reference": [["b", 1]]}', r"reference\[0\]\[1\]`"),
        ('{"question_id": 2, "turns": ["a"], "reference": [[["b"]]]}', "Expected `str`, got `array`"),
        ('{"question_id": 2, "turns": ["a", null]}', r"got `null` - at `\$.turns\[1\]`"),
        ('{"question_id": 2, "turns": ["a", ""]}', "turns must hold at least one text"),
        ('{"question_id": true, "turns": ["a"]}', "got `bool`"),
        ('{"question_id": "1", "turns": ["a"]}', "question_id 1 is already used on line 1"),
        ('{"turns": ["a"]}', "missing required field `question_id`"),
        ('{"question_id": 2, "turns": ["a"]},', r"trailing characters \(byte 35\)"),
        ('{"question_id": 2, "turns": ["a"', "truncated"),
        ('{"question_id": 2, "turns": ["a"], "deep": ' + "[" * 100_000 + "]" * 100_000 + "}", "recursion"),
        ("\ufeff" + made(2), "malformed"),
        ('{"question_id": 2}', "Object missing required field `turns`"),
        ('{"question_id": 2, "turns": "what?"}', "Expected `array`"),
        ('{"question_id": 2, "turns": []}', "turns must hold"),
        ('{"question_id": 2, "turns": ["a", "  "]}', "turns must hold"),
        ('{"question_id": 2.5, "turns": ["a"]}', "Expected"),
        ("[1, 2]", "Expected `object`"),
    ],
)
def test_a_broken_line_is_named_in_one_line(load, bad, words):
    with pytest.raises(EvaluationError, match=rf"made_up\.jsonl line 2: .*{words}") as caught:
        load(f"{ONE}\n{bad}\n")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[\n  {}\n]\n", "{\n}\n", f"[{ONE}]\n"])
def test_one_json_value_over_lines_is_refused(load, text):
    with pytest.raises(EvaluationError, match=r"line 1: .*a line is"):
        load(text, "whole.json")


def test_bytes_that_are_no_utf8_behind_a_mark_are_named_by_line(load):
    with pytest.raises(EvaluationError, match="line 2: not UTF-8"):
        load(b"\xef\xbb\xbf" + ONE.encode() + b"\r\n\xff\r\n")
    with pytest.raises(EvaluationError, match="line 1: not UTF-8"):
        load(ONE.encode("utf-16"))


def test_json_lines_under_a_plain_name_are_not_asked_as_prompts(load):
    with pytest.raises(
        EvaluationError, match=r"line 2: a JSON object, not plain text; name the file \.jsonl"
    ):
        load(f"\n{ONE}\n", "questions.txt")
    assert load('{"a": 1} is what?\n', "plain.txt")[0].turns == ('{"a": 1} is what?',)


def test_a_row_without_text_is_no_question():
    rows = [{"prompt": None}, {"prompt": "why?"}, {"prompt": ["a", None]}]
    assert [(q.question_id, q.turns) for q in questions_of_rows(rows, "org/d")] == [("1", ("why?",))]


def test_missing_and_empty_files_are_refused(tmp_path, write):
    with pytest.raises(EvaluationError, match="No such file"):
        load_questions([tmp_path / "none.jsonl"])
    with pytest.raises(EvaluationError, match="holds no question"):
        load_questions([write("\n \n")])
    with pytest.raises(EvaluationError, match="given twice"):
        load_questions([write(ONE), write(ONE)])


def test_plain_text_is_a_question_a_line(load):
    questions = load("one\n\n  two \n", "mine.txt")
    assert [(q.question_id, q.turns) for q in questions] == [("1", ("one",)), ("3", ("two",))]


def test_files_take_turns_up_to_the_limit(write):
    first = write("\n".join(made(n) for n in range(5)), "a.jsonl")
    second = write("\n".join(made(n) for n in range(2)), "b.jsonl")
    questions = load_questions([first, second], limit=5)
    assert [(q.source, q.question_id) for q in questions] == [
        ("a", "0"),
        ("b", "0"),
        ("a", "1"),
        ("b", "1"),
        ("a", "2"),
    ]


def test_files_of_one_name_are_told_apart_by_their_folder(write):
    paths = [write(made(1), "x/q.jsonl"), write(made(1), "y/q.jsonl")]
    assert {q.source for q in load_questions(paths)} == {str(path) for path in paths}


def test_rows_of_a_dataset_find_their_column():
    rows = [{"answer": "4", "question": "2+2?"}, {"answer": "", "question": " "}]
    (question,) = questions_of_rows(rows, "org/math")
    assert (question.source, question.question_id, question.turns) == ("org/math", "0", ("2+2?",))
    assert questions_of_rows(rows, "org/math", "answer")[0].turns == ("4",)
    with pytest.raises(EvaluationError, match="no column title; it has answer, question"):
        questions_of_rows(rows, "org/math", "title")
    assert questions_of_rows([{"turns": ["a", "b"]}], "d")[0].turns == ("a", "b")


BENCHMARKS = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"


@pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the shared benchmark questions are not on this machine")
def test_the_shared_benchmarks_load_and_mix():
    files = sorted(BENCHMARKS.glob("*.jsonl"))
    questions = load_questions(files)
    assert Counter(q.source for q in questions) == {path.stem: 80 for path in files}
    two_turns = [q for q in questions if len(q.turns) == 2]
    assert {q.source for q in two_turns} == {"mt_bench"} and len(two_turns) == 80
    assert {q.source for q in load_questions(files, limit=len(files))} == {path.stem for path in files}
