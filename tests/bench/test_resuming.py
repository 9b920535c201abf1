"""What a resumed run takes over from an earlier one, and what an interrupted one says of its answers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from specnav.bench.data.questions import Question
from specnav.bench.records.bench import AnswerRecord, BenchJournal, changed_questions
from specnav.bench.report.studies import how_measured
from specnav.bench.runner import study
from specnav.bench.runner.points import is_finished
from specnav.bench.runner.run import BenchRun, run_bench, settings_of
from specnav.bench.runner.view import as_ar
from specnav.bench.settings import BenchConfig
from specnav.errors import UsageError
from specnav.signals import signals_wait
from tests.bench.made_up import ar_answer, made_up_results, sd_answer
from tests.bench.made_up_studies import made_up_study

METHODS = ("ar", "sd")


def answered(question: Question) -> list[AnswerRecord]:
    """Answers of both methods."""
    name = {"source": question.source, "question_id": question.question_id, "digest": question.digest}
    return [msgspec.structs.replace(one, **name) for one in (ar_answer("1"), sd_answer("1"))]


@pytest.fixture
def begun(tmp_path: Path, model_root: Path) -> tuple[BenchConfig, Path]:
    """A finished run in a folder, and its file of questions."""
    file = tmp_path / "mine.jsonl"
    file.write_text('{"question_id": 7, "turns": ["What is a lamp?"]}\n')
    config = BenchConfig(
        questions=(str(file),), methods=METHODS, out=tmp_path / "run", resume=True,
        target_model=str(model_root / "text-target"), draft_model=str(model_root / "text-draft"),
    )  # fmt: skip
    (tmp_path / "run").mkdir()
    made_up, _ = made_up_results()
    results = msgspec.structs.replace(
        made_up, config=settings_of(config, METHODS), skipped=[], asked=1, point=None,
        rows=[msgspec.structs.replace(row, questions=1) for row in made_up.rows],
    )  # fmt: skip
    journal = BenchJournal(tmp_path / "run", lambda answers: results)
    journal.add(answered(Question("mine", "7", ("What is a lamp?",))))
    return config, file


def test_an_answer_belongs_to_the_text_of_its_question() -> None:
    one, other = Question("mine", "7", ("a", "b")), Question("mine", "7", ("a", "c"))
    assert changed_questions(answered(one), [one]) == [] and changed_questions(answered(one), []) == []
    assert changed_questions(answered(one), [other]) == ["mine 7"]
    earlier = [msgspec.structs.replace(answer, digest="") for answer in answered(one)]
    assert changed_questions(earlier, [other]) == []  # files of earlier versions do not say


def test_a_question_that_was_changed_is_not_answered_by_the_earlier_answer(begun: tuple[BenchConfig, Path]) -> None:
    config, file = begun
    assert config.out is not None and is_finished(config, config.out)
    file.write_text('{"question_id": 7, "turns": ["What is a mug?"]}\n')
    assert not is_finished(config, config.out)
    with pytest.raises(UsageError, match="the text of question mine 7 has changed since it was answered"):
        run_bench(config)


def test_answers_that_may_be_near_ties_are_not_called_wrong_before_they_are_replayed(tmp_path: Path) -> None:
    results, _ = made_up_results()
    other = sd_answer("1", (4, 2, 0, 2))
    answers = [ar_answer("1"), other, sd_answer("1", (4, 2, 0, 1), "fsd")]
    methods = ("ar", "sd", "fsd")
    run = BenchRun(tmp_path, BenchConfig(), methods, results, comparable=frozenset(methods), unsorted=True)
    _, sd, fsd = run.results(answers).rows
    assert (sd.identical_to_ar, as_ar(sd), sd.different_answers) == (None, "–", 1) and fsd.identical_to_ar
    run.unsorted = False
    assert as_ar(run.results(answers).rows[1]) == "NO"


def test_near_ties_are_as_ar_in_studies_too() -> None:
    results, _ = made_up_results()
    row = msgspec.structs.replace(results.rows[1], identical_to_ar=False, different_answers=1, near_ties=1)
    assert row.as_ar and not msgspec.structs.replace(row, errors=1).as_ar
    assert msgspec.structs.replace(row, near_ties=0).as_ar is False
    found = made_up_study("gamma")
    settings = [msgspec.structs.replace(one, rows=[row]) for one in found.settings]
    facts = dict(how_measured(msgspec.structs.replace(found, settings=settings)))
    assert facts["Same tokens as ar"] == f"{len(settings)} of {len(settings)} runs"


def test_a_signal_waits_until_what_was_measured_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    def keep() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        done.append("kept")

    monkeypatch.setattr(study, "load_studies", lambda folder: [folder])
    monkeypatch.setattr(study, "write_studies", lambda folder: done.append("drawn"))
    with pytest.raises(KeyboardInterrupt):
        study.show(tmp_path, Console(), keep)
    assert done == ["kept", "drawn"]
    with signals_wait():
        pass
