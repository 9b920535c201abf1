"""Lines as benchmarks publish them, and the odd ones: all of a file is read as it stands, or its line is named."""

from __future__ import annotations

import json

import pytest

from specnav.bench.data.questions import load_questions, questions_of_rows
from specnav.results.errors import EvaluationError

ONE = '{"question_id": 1, "turns": ["a"]}'


@pytest.fixture
def load(tmp_path):
    def load_(content, name="made_up.jsonl"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_questions([path])

    return load_


def made(number, **more):
    return json.dumps({"question_id": number, "category": "rag", "turns": ["who?"], **more})


@pytest.mark.parametrize(
    ("published", "kept"),
    [
        ([["Ada"]], (("Ada",),)),  # from line 401 of Spec-Bench on
        ([["Ada", "Ada Lovelace", "A. L."]], (("Ada", "Ada Lovelace", "A. L."),)),
        (["one", ""], ("one", "")),  # MT-bench: no reference for the second turn
        (["one", ["two", "2"]], ("one", ("two", "2"))),
        ("text", ("text",)),
        ([""], ("",)),
        ([], ()),
        ([[]], ((),)),
        (None, ()),
    ],
)
def test_references_are_kept_as_published(load, published, kept):
    assert load(made(401, reference=published))[0].reference == kept


def test_a_whole_file_of_changing_shapes_is_read(load):
    lines = [
        made(81, category="writing", turns=["first", "second"]),
        made(82, category="math", turns=["first", "second"], reference=["1", ""]),
        made(0, category="", reference=["x"]),
        made("HumanEval/0", category="code", turns=["\ndef f():\n    "], reference=["    return 1\n"]),
        made(481, reference=[["a", "b"]], documents=[1, None, {"k": 2.5}]),
        '{"turns": ["no category"], "question_id": 9}',
        '{"turns": ["null"], "question_id": 10, "category": null, "reference": null}',
    ]
    questions = load("\n".join(lines))
    assert [q.question_id for q in questions] == ["81", "82", "0", "HumanEval/0", "481", "9", "10"]
    assert [q.category for q in questions] == ["writing", "math", "", "code", "rag", "", ""]
    assert questions[3].turns == ("\ndef f():\n    ",)
    assert questions[0].turns == ("first", "second")


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
        ('{"question_id": 2, "turns": ["a"], "turns": ["b"]}', "key 'turns' is given twice"),
        ('{"question_id": 2, "turns": ["\\ud83d"]}', "ud83d is half of a character"),
        ('{"question_id": 2, "turns": ["a"], "reference": 18}', r"got `int` - at `\$.reference`"),
        ('{"question_id": 2, "turns": ["a"], "reference": [18]}', r"got `int` - at `\$.reference\[0\]`"),
        ('{"question_id": 2, "turns": ["a"], "reference": [["b", 1]]}', r"reference\[0\]\[1\]`"),
        ('{"question_id": 2, "turns": ["a"], "reference": [[["b"]]]}', "Expected `str`, got `array`"),
        ('{"question_id": 2, "turns": ["a", null]}', r"got `null` - at `\$.turns\[1\]`"),
        ('{"question_id": 2, "turns": ["a", ""]}', "turns must hold at least one text"),
        ('{"question_id": true, "turns": ["a"]}', "got `bool`"),
        ('{"question_id": "1", "turns": ["a"]}', "question_id 1 is that of line 1"),
        ('{"turns": ["a"]}', "missing required field `question_id`"),
        ('{"question_id": 2, "turns": ["a"]},', r"not valid JSON \(Extra data, column 35\)"),
        ('{"question_id": 2, "turns": ["a"', "not valid JSON"),
        ('{"question_id": 2, "turns": ["a"], "deep": ' + "[" * 100_000 + "]" * 100_000 + "}", "recursion"),
        ("\ufeff" + made(2), "not valid JSON"),
    ],
)
def test_a_broken_line_is_named_in_one_line(load, bad, words):
    with pytest.raises(EvaluationError, match=rf"made_up\.jsonl line 2: .*{words}") as caught:
        load(f"{ONE}\n{bad}\n")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[\n  {}\n]\n", "{\n}\n", f"[{ONE}]\n"])
def test_one_json_value_over_lines_is_refused(load, text):
    with pytest.raises(EvaluationError, match=r"line 1: .*(one whole object a line|a line is)"):
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
