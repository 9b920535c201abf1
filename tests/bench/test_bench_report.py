"""The bench's report: self-contained, complete, and honest about what is paced, emulated and missing."""

from __future__ import annotations

import os

import msgspec
import pytest

from specnav.bench.records.bench import BenchJournal, BenchResults, load_answers
from specnav.bench.report.bench import build_bench_page, tokens_until, write_bench_report
from specnav.results.errors import EvaluationError
from tests.bench.made_up import made_up_results, sd_answer
from tests.report.reading import ReadPage


@pytest.fixture(scope="module")
def page():
    results, answers = made_up_results()
    return build_bench_page(results, answers)


@pytest.mark.slow
def test_report_loads_nothing(page):
    assert ReadPage(page).loaded == [] and "url(" not in page and "<script" not in page and "@import" not in page


@pytest.mark.slow
def test_report_shows_every_method_the_timelines_and_the_papers_figures(page):
    found = ReadPage(page)
    text = " ".join(found.words)
    for words in (
        "hf-generate",
        "identical",
        "Timeline",
        "not in this run",
        "A made-up device",
        "made_up 9",
        "too long",
    ):
        assert words in text or any(words in title for title in found.titles), words
    assert {"Timeline of ar", "Timeline of sd", "Speed-up over cloud AR", "Bytes a round"} <= set(found.titles)
    assert "Timeline of hf-generate" not in found.titles


@pytest.mark.slow
def test_report_says_at_the_top_what_is_emulated_and_paced(page):
    top = " ".join(ReadPage(page[: page.index("All methods")]).words)
    assert "RTT 40 ms" in top and "verify forwards at least 30 ms" in top and "hf-generate" in top
    assert "bandwidth: <not> printed" in top


def test_report_of_a_run_that_ended_early_says_so_and_of_none_still_opens():
    results, _ = made_up_results()
    broken = msgspec.structs.replace(results, error="the verifier <died>", rows=[], point=None, skipped=[])
    text = build_bench_page(broken, [])
    assert "the verifier &lt;died&gt;" in text and "Timeline" not in text
    assert "Interrupted" in build_bench_page(msgspec.structs.replace(broken, error="", interrupted=True), [])


def test_tokens_in_the_window_are_those_that_had_arrived():
    answer = sd_answer("1", accepted=(4, 2))
    ends = sorted(span.end_ms for span in answer.timeline if span.lane == "downlink")
    assert [tokens_until(answer, end) for end in (ends[0] - 1, *ends)] == [0, 1, 6, 9]


@pytest.mark.slow
def test_a_killed_run_keeps_whole_lines_and_resumes(tmp_path):
    results, answers = made_up_results()
    journal = BenchJournal(tmp_path, lambda found: results)
    journal.add(answers[:1])
    journal.add(answers[1:2])
    with (tmp_path / "answers.jsonl").open("ab") as stream:
        stream.write(b'{"method":"sd","source"')
    kept = load_answers(tmp_path)
    assert kept == answers[:2] and BenchResults.load(tmp_path) == results
    again = BenchJournal(tmp_path, lambda found: results, kept)
    again.add(answers[2:])
    assert load_answers(tmp_path) == answers
    rounds = (tmp_path / "rounds.jsonl").read_bytes().splitlines()
    assert len(rounds) == sum(len(answer.rounds) for answer in answers)
    assert write_bench_report(tmp_path).read_text().startswith("<!doctype html>")


def test_answers_that_are_a_pipe_are_refused_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "answers.jsonl")
    with pytest.raises(EvaluationError, match="not a regular file"):
        load_answers(tmp_path)
