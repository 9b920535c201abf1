# SPDX-License-Identifier: Apache-2.0
"""`specnav bench`: the whole run, from starting the processes to the report.

If the run is interrupted or the verifier dies, answered questions stay on disk, the report is drawn and no process is
left; `--resume` asks the missing questions.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from specdec.energy import Meter, find_sensors
from specdec.errors import LinkLost, OptionsError
from specdec.methods import METHODS, get_method, with_axes
from specdec.options import GenerationOptions
from specnav.bench.data.names import ORACLES, check_names, comparable_with_ar
from specnav.bench.data.points import load_point
from specnav.bench.data.questions import Question, load_questions
from specnav.bench.records.bench import (
    AnswerRecord,
    BenchJournal,
    BenchResults,
    changed_questions,
    load_answers,
    whole_questions,
)
from specnav.bench.records.summary import make_rows
from specnav.bench.report.bench import write_bench_report
from specnav.bench.runner.acceptance import disturbance_of, find_acceptance
from specnav.bench.runner.edge import BenchEdge, load_edge, pacing_notes
from specnav.bench.runner.ending import noting_the_end
from specnav.bench.runner.loop import run_questions, split_by_length
from specnav.bench.runner.near_ties import find_flips
from specnav.bench.runner.processes import load_target, may_round, surroundings
from specnav.bench.runner.view import BenchView
from specnav.bench.settings import BenchConfig, generation_options
from specnav.errors import UsageError
from specnav.paths import ROOT
from specnav.results.demo import RESULTS_FILE, SCHEMA, Setting, describe_energy, describe_machine
from specnav.results.errors import EvaluationError
from specnav.run_folder import claim, new_run_folder, started_at
from specnav.settings import shown_settings
from specnav.signals import signals_wait

LOGS = "logs"
UNSORTED = (
    "some answers are not those of ar; the run ended before it was checked whether only rounding at near-ties makes "
    "the difference: run it again with --resume"
)
MAY_DIFFER = frozenset({"methods", "limit", "questions"})
"""Settings that a resumed run may change, because they only add questions or methods."""


@dataclass
class BenchRun:
    """A run in progress. known: its results so far, without rows. earlier_s: wall time of the runs that it resumes.

    unsorted: answers that deviate from those of `ar` may do so at near-ties, and were not replayed yet.
    """

    folder: Path
    config: BenchConfig
    methods: tuple[str, ...]
    known: BenchResults
    earlier_s: float = 0.0
    began: float = field(default_factory=time.monotonic)
    questions: list[Question] = field(default_factory=list)
    comparable: frozenset[str] = frozenset()
    unsorted: bool = False

    def learn(self, **changes: Any) -> None:
        """Change fields of the results."""
        self.known = replace(self.known, **changes)

    def results(self, answers: Sequence[AnswerRecord]) -> BenchResults:
        """The content of results.json for the answers so far."""
        known = self.known
        rows = make_rows(answers, self.methods, self.comparable, known.flips, known.numeric_noise)
        if self.unsorted:
            rows = [replace(row, identical_to_ar=row.identical_to_ar or None) for row in rows]
        wall_s = self.earlier_s + time.monotonic() - self.began
        return replace(known, rows=rows, asked=len(self.questions), wall_s=wall_s)


def settings_of(config: BenchConfig, methods: Sequence[str]) -> dict[str, Setting]:
    """The settings in the form of results.json."""
    hidden = ("out", "resume", "start_timeout_s")
    shown = shown_settings(config, leave_out=hidden, paths=("target_model", "draft_model"))
    questions = ", ".join(name.removeprefix(f"{ROOT}/") for name in config.questions)
    emulated = f"{config.acceptance} (acceptance emulated)" if config.acceptance else ""
    return {**shown, "methods": ", ".join(methods), "questions": questions, "acceptance": emulated}


def open_folder(config: BenchConfig, methods: Sequence[str]) -> tuple[Path, BenchResults | None]:
    """(new folder, None), or (folder to resume, its results). Raises UsageError if its settings differ."""
    if not config.resume or config.out is None:
        return new_run_folder(config.out, "bench"), None
    folder = config.out.resolve()
    if not (folder / RESULTS_FILE).is_file():
        if folder.is_dir() and all(path.name.startswith(LOGS) for path in folder.iterdir()):
            claim(folder)
            return folder, None  # it ended before the first question
        raise UsageError(f"{folder} holds no bench run to resume; leave --resume out to start one")
    claim(folder)
    before = BenchResults.load(folder)
    if changed := changed_settings(config, methods, before):
        raise UsageError(f"cannot resume {folder}: {changed}; use the same settings or a new folder")
    return folder, before


def _check_nothing_is_dropped(folder: Path, questions: Sequence[Question], methods: Sequence[str]) -> None:
    """Raise UsageError if a run has answers to questions or by methods that its resumption leaves out: it rewrites the
    file of answers with those that it reports. So too if an answered question has another text now.
    """
    asked = {(question.source, question.question_id) for question in questions}
    answers = load_answers(folder)
    if changed := changed_questions(answers, questions):
        more = f" and {len(changed) - 1} more" * (len(changed) > 1)
        raise UsageError(
            f"cannot resume {folder}: the text of question {changed[0]}{more} has changed since it was answered; "
            "ask the earlier text, or use a new folder"
        )
    left_out = sorted({one.method for one in answers} - set(methods))
    others = {one.key[:2] for one in answers} - asked
    what = [f"methods {', '.join(left_out)}"] * bool(left_out) + [f"{len(others)} more questions"] * bool(others)
    if what:
        raise UsageError(
            f"cannot resume {folder}: it has answers of {' and '.join(what)}, which would be lost; "
            "ask for them too, or use a new folder"
        )


def series_folder(flags: Mapping[str, Any], kind: str) -> Path:
    """A new folder for several runs, or the one to resume. kind: "study" or "points". Raises UsageError."""
    out = flags.get("out")
    if not flags.get("resume"):
        return new_run_folder(out, kind)
    if out is None:
        raise UsageError("--resume continues an earlier run; name its folder with --out")
    folder = Path(out).resolve()
    if not folder.is_dir():
        raise UsageError(f"{folder} holds no runs to resume; leave --resume out to start them")
    return folder


def changed_settings(config: BenchConfig, methods: Sequence[str], before: BenchResults) -> str:
    """The settings that differ from an earlier run's, in words; "" if the run can be resumed."""
    return differing(settings_of(config, methods), before.config, MAY_DIFFER)


def differing(now: Mapping[str, Setting], before: Mapping[str, Setting], may_differ: Collection[str]) -> str:
    """The settings that differ, in words, except those that may, and new ones; "" if none does."""
    return ", ".join(
        f"{name} was {before[name]!r} and is {value!r}"
        for name, value in now.items()
        if name not in may_differ and before.get(name, value) != value
    )


def methods_of(config: BenchConfig) -> tuple[tuple[str, ...], str]:
    """(contestants with the requested axes, a note about methods left out or "").

    Named methods must support the axes. By default, methods that do not support them are left out, and splits if the
    target cannot be split. Raises OptionsError, EvaluationError, ModelError.
    """
    check_names(config.methods or tuple(METHODS))
    splits = bool(config.methods) or _can_be_split(config)
    names, left_out = [], []
    for name in config.methods or METHODS:
        try:
            names.append(
                name if name in ORACLES else with_axes(name, config.length, config.payload, config.resample)
            )
        except OptionsError:
            with_axes("sd", config.length, config.payload, config.resample)  # raises for an unknown value
            if config.methods:
                raise
            left_out.append(name)
            continue
        if not splits and get_method(name).split:
            left_out.append(names.pop())
    check_names(names)
    if config.acceptance and "hf-assisted" in names:
        raise EvaluationError(
            "hf-assisted drafts with transformers' own forward pass: leave out either it or --acceptance"
        )
    if config.engine != "own" and (named := [name for name in names if name in ORACLES]):
        raise EvaluationError(
            f"{', '.join(named)} computes on torch, not on --engine {config.engine}: leave it out"
        )
    if config.engine == "vllm" and not config.methods:
        raise EvaluationError(
            "with --engine vllm methods must be named, e.g. --methods ar,sd: vLLM lacks several"
        )
    what = "these axes" if splits else "target or axes" if config.engine == "own" else "engine or axes"
    return tuple(names), f"left out, for {what} do not go with them: {', '.join(left_out)}" * bool(left_out)


def _can_be_split(config: BenchConfig) -> bool:
    """Whether a part of the target can run on the edge."""
    from specdec.models.direct import read_shape
    from specdec.models.loading import family_of, read_config

    if config.engine != "own":
        return False
    model = config.target_model
    return read_shape(Path(model)) is not None or family_of(read_config(model))[0] is not None


def run_bench(config: BenchConfig, view: BenchView | None = None) -> int:
    """Run the benchmark; returns the exit code (130 when interrupted). Raises UsageError and other packages' errors.

    view: the output to the user; another one if the run is part of a study.
    """
    view = view or BenchView()
    methods, left_out = methods_of(config)
    questions = load_questions(config.questions, config.limit)
    point = load_point(config.point)[1] if config.point else None
    folder, before = open_folder(config, methods)
    known = BenchResults(
        schema=SCHEMA, config=settings_of(config, methods), machine=describe_machine(), rows=[], point=point,
        started_at=started_at(),
    )  # fmt: skip
    run = BenchRun(folder, config, methods, known)
    if left_out:
        known.notes.append(left_out)
        view.say(left_out)
    if before is not None:
        _check_nothing_is_dropped(folder, questions, methods)
        run.earlier_s = before.wall_s
        run.learn(started_at=before.started_at, acceptance=before.acceptance)
    with noting_the_end() as ending, ExitStack() as stack:
        _answer_all(run, questions, view, stack)
    run.learn(interrupted=bool(ending.code), error=ending.error)
    answers = load_answers(folder)
    if ending.error and not (answers and run.questions):  # it ended before there were results to keep
        raise UsageError(ending.error)
    results = run.results(answers)
    if run.unsorted and any(row.different_answers for row in results.rows):
        results.notes.append(UNSORTED)
        view.say(UNSORTED)
    with signals_wait():
        results.save(folder)
        report = write_bench_report(folder)
    view.finished(results, report)
    if ending.error:
        raise UsageError(f"{ending.error} (earlier answers are in {folder})")
    return ending.code


def _answer_all(run: BenchRun, questions: Sequence[Question], view: BenchView, stack: ExitStack) -> None:
    """Start the processes, load the edge's models, and put the questions to every contestant."""
    config = run.config
    drafts_in_cloud = any(name not in ORACLES and get_method(name).cloud_drafts for name in run.methods)
    edge, disturbance = None, None
    if config.acceptance:
        view.say("loading the target, which also drafts")
        edge = load_edge(config, run.methods)
        _fit(run, questions, edge)
        # A resumed run keeps the noise strength of its earlier answers.
        found = run.known.acceptance or find_acceptance(config, edge.draft, run.questions, view.say)
        run.learn(acceptance=found)
        edge.draft.disturbance = disturbance = disturbance_of(found)
    view.say("loading the pair, starting the verifier" if edge is None else "starting the verifier")
    logs = new_folder(run.folder / LOGS)
    place = stack.enter_context(surroundings(config, logs, drafts_in_cloud, disturbance=disturbance))
    edge = edge or load_edge(config, run.methods)
    run.known.machine["threads"] = torch.get_num_threads()
    run.known.notes.extend(edge.notes)
    run.comparable = comparable_with_ar(run.methods, config.temperature)
    _fit(run, questions, edge)
    contestants = edge.contestants(stack, place.open_link())
    options = generation_options(config)
    run.unsorted = options.temperature == 0 and may_round(config, edge.draft)
    earlier = whole_questions(load_answers(run.folder), run.questions, run.methods)
    journal = BenchJournal(run.folder, run.results, earlier)
    missing = sum(not journal.has(q, name) for q in run.questions for name in run.methods)
    meter = Meter(find_sensors()).start()
    stack.callback(meter.close)
    with view.answering(missing, len(run.questions)) as advance:
        try:
            run_questions(run.questions, contestants, edge.draft.tokenizer, options, journal, advance, meter)
        except LinkLost:
            place.supervisor.check()  # a dead process explains more than the lost link
            raise
        finally:
            run.known.notes.extend(pacing_notes(edge, journal.answers))
            run.known.machine.update(describe_energy(meter))
    if run.unsorted:
        _replay_flips(run, options, view)
        run.unsorted = False


def _fit(run: BenchRun, questions: Sequence[Question], edge: BenchEdge) -> None:
    """Select the questions that fit into both models' contexts. Raises EvaluationError if none fits."""
    room = min(edge.draft.context_limit, context_of(run.config.target_model))
    run.questions, skipped = split_by_length(questions, edge.draft.tokenizer, room, run.config.max_new_tokens)
    if not run.questions:
        raise EvaluationError(f"no question fits: {skipped[0].reason}; ask shorter ones")
    run.learn(skipped=skipped)


def _replay_flips(run: BenchRun, options: GenerationOptions, view: BenchView) -> None:
    """Check whether answers deviate from `ar` only at near-ties, and report how often `ar` itself is near a tie."""
    config, answers = run.config, load_answers(run.folder)
    suspects = [
        row.method for row in make_rows(answers, run.methods, run.comparable) if row.identical_to_ar is False
    ]
    on_llamacpp = config.engine == "llamacpp"
    if "ar" not in run.methods or (on_llamacpp and not suspects):
        return
    where = "llama.cpp" if on_llamacpp else "half precision"
    view.say(f"{where}: replaying on the target, to find near-ties and the positions where answers differ")
    model = load_target(config)
    if not on_llamacpp:
        where += f" ({str(model.dtype).removeprefix('torch.')})"
    found = find_flips(model, run.questions, answers, suspects, options)
    run.learn(flips=found.flips, numeric_noise=found.noise)
    rows = run.results(answers).rows
    near, errors = sum(row.near_ties for row in rows), sum(row.errors for row in rows)
    largest = max((flip.margin for flip in found.flips), default=0.0)
    note = (
        f"{where}: "
        + (f"identical up to {near} near-ties (largest margin {largest:.4g}, " if found.flips else "identical (")
        + f"numeric noise {found.noise:.4g}; {found.close} of {found.positions} picks of ar won by less)"
        + (f"; {errors} ERRORS above the noise" if errors else "")
    )
    run.known.notes.append(note)
    view.say(note)


def new_folder(place: Path) -> Path:
    """`place`, or `place-N` if it exists, so that the ready line of an earlier run is not read."""
    names = itertools.chain([place.name], (f"{place.name}-{number}" for number in itertools.count(2)))
    return next(found for name in names if not (found := place.with_name(name)).exists())


def context_of(model: str) -> int:
    """Size of the model's context in tokens."""
    from specdec.models.direct import read_shape
    from specdec.models.gguf.files import check_file, gguf_file

    if file := gguf_file(model):
        from specdec.models.gguf.binding import LlamaModel

        check_file(file)
        header = LlamaModel(file, vocabulary_only=True)
        return int(header.metadata(f"{header.metadata('general.architecture')}.context_length"))
    shape = read_shape(Path(model))
    if shape is not None:
        return shape.text.max_position_embeddings
    from specdec.models.library.generic import context_limit_of
    from specdec.models.loading import read_config

    return context_limit_of(read_config(model).get_text_config())
