# SPDX-License-Identifier: Apache-2.0
"""The journal of a run: answers are saved after every question, so that an interrupted run can be resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from specdec.errors import DECODE_ERRORS
from specnav.bench.data.questions import Question
from specnav.bench.records.bench import ANSWERS_FILE, ROUNDS_FILE, AnswerRecord, BenchResults, save_bench
from specnav.results.errors import EvaluationError
from specnav.results.files import write_bytes_atomic

_decoder = msgspec.json.Decoder(AnswerRecord)


def load_answers(run: Path) -> list[AnswerRecord]:
    """The answers of a run; an unfinished last line (the run was killed) is dropped. Raises EvaluationError."""
    path = run / ANSWERS_FILE
    if path.exists() and not path.is_file():  # reading a pipe would never end
        raise EvaluationError(f"cannot read {path}: not a regular file; give the folder of a run")
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise EvaluationError(
            f"cannot read {path}: {error.strerror or error}; give the folder of a run"
        ) from error
    records = []
    # Text after the last newline was being written when the run ended.
    for number, line in enumerate(lines[:-1], start=1):
        if not line:
            continue
        try:
            records.append(_decoder.decode(line))
        except DECODE_ERRORS as error:
            raise EvaluationError(f"{path} line {number}: {error}; remove that line or the folder") from error
    return records


class BenchJournal:
    """Answers by contestant and question. `results` makes the current results.json from the answers so far."""

    def __init__(
        self,
        run: Path,
        results: Callable[[Sequence[AnswerRecord]], BenchResults],
        earlier: Iterable[AnswerRecord] = (),
    ) -> None:
        """Start from the answers of an earlier run with the same settings and rewrite both files."""
        self._run = run
        self._results = results
        self.answers: list[AnswerRecord] = list(earlier)
        self._turns = _turns(self.answers)
        write_bytes_atomic(run / ANSWERS_FILE, _lines(self.answers))
        write_bytes_atomic(run / ROUNDS_FILE, _lines(_rounds(self.answers)))
        self.settle()

    def has(self, question: Question, method: str) -> bool:
        """Whether every turn of the question was answered by the contestant."""
        return self._turns[method, question.source, question.question_id] >= len(question.turns)

    def add(self, records: Sequence[AnswerRecord]) -> None:
        """Append all turns of one question by one contestant."""
        for name, data in ((ANSWERS_FILE, _lines(records)), (ROUNDS_FILE, _lines(_rounds(records)))):
            with (self._run / name).open("ab") as stream:
                stream.write(data)
        self.answers += records
        self._turns += _turns(records)

    def settle(self) -> None:
        """Write results.json from the answers so far."""
        save_bench(self._run, self._results(self.answers))


def _turns(answers: Iterable[AnswerRecord]) -> Counter[tuple[str, str, str]]:
    """How many turns of a question a contestant has answered."""
    return Counter((one.method, one.source, one.question_id) for one in answers)


def whole_questions(
    answers: Sequence[AnswerRecord], questions: Sequence[Question], methods: Sequence[str]
) -> list[AnswerRecord]:
    """The answers of an earlier run that this one can reuse: same methods and questions, with every turn answered."""
    whole = {(name, q.source, q.question_id): len(q.turns) for q in questions for name in methods}
    counts = _turns(answers)
    return [one for one in answers if counts[key := (one.method, *one.key[:2])] == whole.get(key)]


def _rounds(records: Iterable[AnswerRecord]) -> Iterator[dict[str, object]]:
    """Lines of `rounds.jsonl`: the answer's key, the round's number, and the fields of RoundStats."""
    for record in records:
        of = {name: getattr(record, name) for name in ("method", "source", "question_id", "turn")}
        for number, one in enumerate(record.rounds):
            yield {**of, "round": number, **asdict(one)}


def _lines(records: Iterable[object]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)
