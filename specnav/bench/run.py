"""`specnav bench`: the whole run, from the processes' start to the report.

Whatever happens (the verifier dies, Ctrl-C), answered questions stay on disk, the report is drawn and no process is
left; `--resume` goes on with what is missing.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console

from evaluation.bench.journal import Journal, load_answers, whole_questions
from evaluation.bench.records import AnswerRecord, BenchResults, PointRecord, Skipped, load_bench, save_bench
from evaluation.bench.summary import make_rows
from evaluation.errors import EvaluationError
from evaluation.questions import Question, load_questions
from evaluation.report.bench import write_bench_report
from evaluation.results import RESULTS_FILE, SCHEMA, Setting, describe_machine
from specnav.bench.config import BenchConfig, load_point
from specnav.bench.processes import surroundings
from specnav.bench.view import progress, table
from specnav.demo.errors import DemoError
from specnav.errors import UsageError
from specnav.run_folder import new_run_folder
from specnav.settings import shown_settings
from specnav.signals import ends_on_signals

RESUME_TIMEOUT_S = 5.0
"""How long an answer tries to go on after a lost link."""
MAY_DIFFER = frozenset({"methods", "limit", "questions"})
"""Settings that a resumed run may change: they only say what more is asked."""


@dataclass
class Run:
    """A run in progress: where it writes, what it was asked, and how it ends."""

    folder: Path
    config: BenchConfig
    methods: tuple[str, ...]
    point: PointRecord | None
    machine: dict[str, Setting]
    began: float
    earlier_s: float = 0.0
    skipped: list[Skipped] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    comparable: frozenset[str] = frozenset()
    interrupted: bool = False
    error: str = ""
    started_at: str = field(default_factory=lambda: datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"))
    clock: Callable[[], float] = time.monotonic

    def results(self, answers: Sequence[AnswerRecord]) -> BenchResults:
        """results.json of the answers so far."""
        return BenchResults(
            schema=SCHEMA,
            config=settings_of(self.config, self.methods),
            machine=self.machine,
            rows=make_rows(answers, self.methods, self.comparable),
            point=self.point,
            skipped=self.skipped,
            asked=len(self.questions),
            interrupted=self.interrupted,
            error=self.error,
            started_at=self.started_at,
            wall_s=self.earlier_s + self.clock() - self.began,
        )


def settings_of(config: BenchConfig, methods: Sequence[str]) -> dict[str, Setting]:
    """The settings as results.json keeps them."""
    hidden = ("out", "resume", "start_timeout_s")
    shown = shown_settings(config, leave_out=hidden, paths=("target_model", "draft_model"))
    return {**shown, "methods": ", ".join(methods)}


def open_folder(config: BenchConfig, methods: Sequence[str]) -> tuple[Path, BenchResults | None]:
    """A new folder, or the one to go on in with its results. Raises UsageError when its settings differ."""
    if not config.resume or config.out is None:
        return new_run_folder(config.out, "bench", datetime.now()), None
    folder = config.out.resolve()
    if not (folder / RESULTS_FILE).is_file():
        raise UsageError(f"{folder} holds no bench run to resume; leave --resume out to start one")
    before = load_bench(folder)
    now = settings_of(config, methods)
    differing = [
        name for name in now if name not in MAY_DIFFER and now[name] != before.config.get(name, now[name])
    ]
    if differing:
        words = ", ".join(f"{name} was {before.config[name]!r} and is {now[name]!r}" for name in differing)
        raise UsageError(f"cannot resume {folder}: {words}; use the same settings or a new folder")
    return folder, before


def run_bench(config: BenchConfig) -> int:
    """Run the benchmark; returns the exit code (130 when interrupted). Raises UsageError and the rooms' errors."""
    from evaluation.bench.contestants import check_names
    from specdec.errors import SpecdecError
    from specdec.methods import METHODS

    methods = config.methods or tuple(METHODS)
    check_names(methods)
    questions = load_questions(config.questions, config.limit)
    point = load_point(config.point)[1] if config.point else None
    folder, before = open_folder(config, methods)
    console = Console(stderr=True)
    run = Run(folder, config, methods, point, describe_machine(), time.monotonic())
    if before is not None:
        run.started_at, run.earlier_s = before.started_at, before.wall_s
    try:
        with ends_on_signals(), ExitStack() as stack:
            _answer_all(run, questions, console, stack)
    except KeyboardInterrupt:
        run.interrupted = True
    except (SpecdecError, EvaluationError, DemoError) as error:
        run.error = " ".join(str(error).split())
    answers = load_answers(folder)
    if run.error and not answers:
        raise UsageError(run.error)
    save_bench(folder, run.results(answers))
    report = write_bench_report(folder)
    Console().print(table(run.results(answers).rows))
    console.print(f"report: {report}", soft_wrap=True)
    if run.error:
        raise UsageError(f"{run.error} (what was answered before is in {folder})")
    return 130 if run.interrupted else 0


def _answer_all(run: Run, questions: Sequence[Question], console: Console, stack: ExitStack) -> None:
    """Start the processes, load what the edge needs, and put the questions to every contestant."""
    from cloud_verifier.server import set_threads
    from evaluation.bench.contestants import ORACLES, Contestant, EdgeContestant, OracleContestant
    from evaluation.bench.loop import run_questions, split_by_length
    from specdec.edge import connect
    from specdec.errors import LinkLost
    from specdec.link.shaping import LinkProfile
    from specdec.methods import get_method
    from specdec.models import load_model
    from specdec.options import GenerationOptions
    from specdec.pacing import pace

    config = run.config
    profile = LinkProfile(config.rtt_ms, config.jitter_ms, config.bandwidth_mbps, config.loss)
    edge_methods = [name for name in run.methods if name not in ORACLES]
    drafts_in_cloud = any(get_method(name).cloud_drafts for name in edge_methods)
    console.print("starting the verifier, loading the pair")
    place = stack.enter_context(surroundings(config, logs_folder(run.folder), drafts_in_cloud))
    how = {"device": config.device, "dtype": config.dtype, "quantize": config.quantize}
    draft = load_model(config.draft_model, **how)
    target = load_model(config.target_model, **how) if set(run.methods) & set(ORACLES) else None
    set_threads(0, target or draft)
    pace(draft, config.draft_ms)
    run.machine["threads"] = torch_threads()
    run.comparable = comparable_with_ar(run.methods, config.temperature)
    run.questions, run.skipped = split_by_length(
        questions,
        draft.tokenizer,
        min(draft.context_limit, context_of(config.target_model)),
        config.max_new_tokens,
    )
    if not run.questions:
        raise EvaluationError(f"no question fits: {run.skipped[0].reason}; ask shorter ones")
    link = stack.enter_context(
        connect(
            place.endpoint,
            connect_timeout_s=10.0,
            reply_timeout_s=2.0 + 4 * config.rtt_ms / 1e3 + (30.0 if config.loss else 0.0),
            round_timeout_s=60.0 + config.rtt_ms / 1e3 + 64 * config.verify_ms / 1e3,
        )
    )
    contestants: list[Contestant] = []
    for name in run.methods:
        if name in ORACLES:
            assert target is not None
            assistant = draft if name == "hf-assisted" else None
            pacing = (config.verify_ms, config.draft_ms_in_cloud)
            contestants.append(OracleContestant(name, target, assistant, config.gamma, *pacing))
        else:
            contestants.append(EdgeContestant(name, link, draft, config.gamma, profile, RESUME_TIMEOUT_S))
    options = GenerationOptions(
        max_new_tokens=config.max_new_tokens,
        temperature=config.temperature,
        seed=config.seed,
        top_k=config.top_k,
        top_p=config.top_p,
        min_p=config.min_p,
        repetition_penalty=config.repetition_penalty,
    )
    earlier = whole_questions(load_answers(run.folder), run.questions, run.methods)
    journal = Journal(run.folder, run.results, earlier)
    missing = sum(not journal.has(q, name) for q in run.questions for name in run.methods)
    with progress(console, missing, len(run.questions)) as advance:
        try:
            run_questions(run.questions, contestants, draft.tokenizer, options, journal, advance)
        except LinkLost:
            place.supervisor.check()  # the process that ended says more than the silence after it
            raise


def logs_folder(run: Path) -> Path:
    """Where the processes' logs go: a new folder each time, for a ready line of an earlier run must not be read."""
    names = itertools.chain(["logs"], (f"logs-{number}" for number in itertools.count(2)))
    return next(run / name for name in names if not (run / name).exists())


def comparable_with_ar(methods: Sequence[str], temperature: float) -> frozenset[str]:
    """Whose ids must equal those of `ar`: greedy, everybody's; sampling, only those that share its noise."""
    from evaluation.bench.contestants import ORACLES
    from specdec.methods import get_method
    from specdec.sampling.recovery import Recovery

    if temperature == 0:
        return frozenset(methods)
    return frozenset(
        name
        for name in methods
        if name not in ORACLES and get_method(name).recovery_at(temperature) is Recovery.NOISE
    )


def context_of(model: str) -> int:
    """Tokens the model's context holds."""
    from transformers import AutoConfig

    return int(AutoConfig.from_pretrained(model).get_text_config().max_position_embeddings)


def torch_threads() -> int:
    """CPU threads of a forward on the edge."""
    import torch

    return torch.get_num_threads()
