"""Questions are read from files in the shared form, from plain text and from dataset rows; faults name the line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from specnav.bench.data.questions import load_questions, questions_of_rows
from specnav.results.errors import EvaluationError


def line(number, turns=("what?",), **more):
    return json.dumps({"question_id": number, "turns": list(turns), **more})


@pytest.fixture
def write(tmp_path):
    def write_(text, name="questions.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_


def test_turns_category_and_reference_are_kept(write):
    path = write(
        line(81, ["first", "second"], category="writing", reference=["a", "b"])
        + "\n\n"
        + line("x", reference="one")
    )
    first, second = load_questions([path])
    assert (first.source, first.question_id, first.turns) == ("questions", "81", ("first", "second"))
    assert (first.category, first.reference) == ("writing", ("a", "b"))
    assert (second.question_id, second.category, second.reference) == ("x", "", ("one",))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{", "line 2: not valid JSON"),
        ('{"question_id": 1}', "line 2: Object missing required field `turns`"),
        ('{"question_id": 1, "turns": "what?"}', r"line 2: Expected `array`"),
        ('{"question_id": 5, "turns": []}', "line 2: turns must hold"),
        ('{"question_id": 5, "turns": ["a", "  "]}', "line 2: turns must hold"),
        ('{"question_id": 5.5, "turns": ["a"]}', "line 2: Expected"),
        ("[1, 2]", "line 2: Expected `object`"),
        ('{"question_id": 7, "turns": ["a"]}', "line 2: question_id 7 is that of line 1"),
    ],
)
def test_a_malformed_line_is_named(write, bad, words):
    with pytest.raises(EvaluationError, match=words):
        load_questions([write(f"{line(7)}\n{bad}\n{line(8)}\n")])


def test_bytes_that_are_no_text_are_named_by_line(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_bytes(line(1).encode() + b"\n\xff\xfe\n")
    with pytest.raises(EvaluationError, match="line 2: not UTF-8"):
        load_questions([path])


def test_missing_and_empty_files_are_refused(tmp_path, write):
    with pytest.raises(EvaluationError, match="No such file"):
        load_questions([tmp_path / "none.jsonl"])
    with pytest.raises(EvaluationError, match="holds no question"):
        load_questions([write("\n \n")])
    with pytest.raises(EvaluationError, match="given twice"):
        load_questions([write(line(1)), write(line(1))])


def test_plain_text_is_a_question_a_line(write):
    questions = load_questions([write("one\n\n  two \n", "mine.txt")])
    assert [(q.question_id, q.turns) for q in questions] == [("1", ("one",)), ("3", ("two",))]


def test_files_take_turns_up_to_the_limit(write):
    first = write("\n".join(line(n) for n in range(5)), "a.jsonl")
    second = write("\n".join(line(n) for n in range(2)), "b.jsonl")
    questions = load_questions([first, second], limit=5)
    assert [(q.source, q.question_id) for q in questions] == [
        ("a", "0"),
        ("b", "0"),
        ("a", "1"),
        ("b", "1"),
        ("a", "2"),
    ]


def test_files_of_one_name_are_told_apart_by_their_folder(write):
    paths = [write(line(1), "x/q.jsonl"), write(line(1), "y/q.jsonl")]
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
