# SPDX-License-Identifier: Apache-2.0
"""`specnav replay`: the whole run, from the bag to the report.

If the run fails or is interrupted, its decisions stay on disk and the report is still written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from spec_vlm_nav.camera.images import RawImage
from specnav.bags.contents import BagContents, choose_image_topic, pictures, read_contents
from specnav.bags.labels import read_labels
from specnav.bags.records import (
    FRAMES,
    BagRecord,
    DecisionRecord,
    ReplayResults,
    RunComparison,
    SkippedRecord,
    TopicRecord,
    append_decisions,
    load_decisions,
)
from specnav.bags.scoring import all_identical, compare_runs, make_rows
from specnav.bags.source import Bag, open_bag
from specnav.bags.types import NEWEST, Types
from specnav.bench.data.names import comparable_with_ar
from specnav.errors import UsageError
from specnav.record.types import own_types
from specnav.replay.config import ReplayConfig
from specnav.replay.passes import PassResult, at_bag_speed, by_frames, warm_up
from specnav.replay.plan import ACTIONS, VOCABULARY, ReplayPlan, ReplayTask, make_plan
from specnav.replay.view import ReplayView
from specnav.report.replay import write_replay_report
from specnav.results.demo import SCHEMA, Setting, describe_energy, describe_machine
from specnav.results.errors import EvaluationError, one_line
from specnav.run_folder import new_run_folder, started_at
from specnav.settings import shown_settings
from specnav.signals import signals_wait

MOST_PICTURES = 150
ALWAYS_PICTURES = 40
"""Pictures kept for the report: this many from the start, and later ones up to MOST_PICTURES if something went
wrong.
"""


@dataclass
class ReplayRun:
    """A replay in progress."""

    folder: Path
    config: ReplayConfig
    bag: Bag
    contents: BagContents
    plan: ReplayPlan
    machine: dict[str, Setting]
    began: float
    passage: PassResult = field(default_factory=PassResult)
    decisions: list[DecisionRecord] = field(default_factory=list)
    interrupted: bool = False
    error: str = ""
    kept: set[int] = field(default_factory=set)
    started_at: str = field(default_factory=started_at)

    def keep(self, record: DecisionRecord, jpeg: bytes | None) -> None:
        """Save a decision, with its picture if the report needs one."""
        telling = bool(record.error) or (record.reference not in ("", record.action))
        wanted = len(self.kept) < (MOST_PICTURES if telling else ALWAYS_PICTURES)
        kind = "png" if jpeg is not None and jpeg.startswith(b"\x89PNG") else "jpg"
        name = f"{FRAMES}/{record.frame:06d}.{kind}"
        if jpeg is not None and (record.frame in self.kept or wanted):
            if record.frame not in self.kept:
                path = self.folder / name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(jpeg)
                self.kept.add(record.frame)
            record = msgspec.structs.replace(record, picture=name)
        self.decisions.append(record)
        append_decisions(self.folder, [record])

    def results(self, comparison: RunComparison | None = None) -> ReplayResults:
        """Return the contents of results.json for the decisions so far."""
        alike = comparable_with_ar(self.config.methods, self.config.temperature)
        rows = make_rows(self.decisions, self.config.methods, ACTIONS, self.passage.skipped, alike)
        return ReplayResults(
            schema=SCHEMA,
            config=settings_of(self.config),
            machine=self.machine,
            bag=describe_bag(self.bag, self.contents, self.plan, len(self.passage.unusable)),
            actions=list(ACTIONS),
            rows=rows,
            identical_tokens=all_identical(rows),
            frames_per_s=self.passage.frames_per_s,
            comparison=comparison,
            interrupted=self.interrupted,
            error=self.error,
            started_at=self.started_at,
            wall_s=time.monotonic() - self.began,
        )


def settings_of(config: ReplayConfig) -> dict[str, Setting]:
    """Return the settings as results.json stores them."""
    shown = shown_settings(
        config,
        leave_out=("out", "methods", "key"),
        paths=("bag", "labels", "compare", "target_model", "draft_model"),
    )
    for name in ("labels", "compare"):
        if getattr(config, name) is None:
            shown[name] = None
    picture = config.picture()
    size = f"{picture.width}x{picture.height}" if picture.width and picture.height else "as recorded"
    return {**shown, "methods": ", ".join(config.methods), "picture": size}


def describe_bag(bag: Bag, contents: BagContents, plan: ReplayPlan, unusable: int) -> BagRecord:
    """Describe the bag for the results."""
    times = [bag.timeline.played(frame.time_ns) for frame in contents.frames]
    skipped = [*bag.skipped, *contents.skipped]
    return BagRecord(
        path=str(bag.path),
        topics=[TopicRecord(topic.name, topic.kind, topic.count) for topic in bag.topics],
        image_topic=contents.image.name,
        frames=len(contents.frames),
        selected=len(plan.tasks),
        duration_s=(max(times) - min(times)) / 1e9 if times else 0.0,
        references=plan.references,
        referenced=sum(bool(task.reference) for task in plan.tasks),
        unusable=unusable,
        warnings=[*bag.warnings, *plan.notes],
        messages_found=bag.found,
        messages_used=bag.found - sum(one.count or 0 for one in skipped),
        messages_skipped=[SkippedRecord(one.file, one.count, one.reason) for one in skipped],
    )


def read_bag(config: ReplayConfig) -> tuple[Bag, Types, BagContents, ReplayPlan]:
    """Read everything from the bag except its images. Raises EvaluationError."""
    labels = read_labels(config.labels, VOCABULARY) if config.labels is not None else None
    bag = open_bag(config.bag)
    types = own_types(bag.distro or NEWEST)
    image = choose_image_topic(bag, config.image_topic)
    contents = read_contents(bag, types, image, VOCABULARY)
    if not contents.frames:
        raise EvaluationError(f"no frame of {image.name} in {config.bag} can be read")
    if (
        config.rate == "bag" and not bag.timeline.jumps
    ):  # with jumps, the bag's warnings have the notes already
        contents.notes += bag.timeline.notes
    return bag, types, contents, make_plan(contents, config.instruction, labels, config.every, config.limit)


def load_earlier(run: Path | None) -> list[DecisionRecord]:
    """Load the decisions of the run to compare with; [] if none was named. Raises EvaluationError."""
    if run is None:
        return []
    ReplayResults.load(run)
    if not (found := load_decisions(run)):
        raise EvaluationError(f"{run} contains no decisions to compare with")
    return found


def run_replay(config: ReplayConfig) -> int:
    """Replay a bag; returns the exit code, 130 after an interrupt.

    Raises:
        UsageError: No frame could be decided, or an error ended the run.
        EvaluationError: The bag, the labels or the earlier run cannot be used.
    """
    from specdec.errors import SpecdecError
    from specnav.replay.edge import check_methods

    view = ReplayView()
    check_methods(config)
    config.picture()
    earlier = load_earlier(config.compare)
    bag, types, contents, plan = read_bag(config)
    folder = new_run_folder(config.out, "replay")
    run = ReplayRun(folder, config, bag, contents, plan, describe_machine(), time.monotonic())
    view.say(bag.summary)
    for words in (*bag.warnings, *plan.notes):
        view.say(f"note: {words}")
    try:
        with ExitStack() as stack:
            _decide_all(run, types, view, stack)
    except KeyboardInterrupt:
        run.interrupted = True
    except SpecdecError as error:
        run.error = one_line(error)
    if not any(not one.error for one in run.decisions) and not run.interrupted:
        why = run.error or next((one.error for one in run.decisions if one.error), "no decision was made")
        raise UsageError(f"no frame could be decided: {why}")
    comparison = None
    if earlier and run.decisions:
        comparison = compare_runs(run.decisions, earlier, str(config.compare))
    results = run.results(comparison)
    with signals_wait():
        results.save(folder)
        report = write_replay_report(folder)
    view.finished(results, report)
    if run.error:
        raise UsageError(f"{run.error} (earlier decisions are in {folder})")
    return 130 if run.interrupted else 0


def _decide_all(run: ReplayRun, types: Types, view: ReplayView, stack: ExitStack) -> None:
    from specnav.replay.edge import open_edge

    config, tasks = run.config, {task.frame.number: task for task in run.plan.tasks}
    view.say(f"deciding {len(tasks)} of {len(run.contents.frames)} frames; starting the verifier")
    edge = open_edge(config, stack)
    run.machine["threads"] = edge.threads

    def all_pictures() -> Iterator[tuple[ReplayTask, bytes | RawImage | None]]:
        for number, picture in pictures(run.bag, types, run.contents.image, tasks):
            yield tasks[number], picture

    warm_up(all_pictures, edge.deciders)
    with view.deciding(len(tasks) * len(edge.deciders)) as advance:

        def keep(record: DecisionRecord, jpeg: bytes | None) -> None:
            run.keep(record, jpeg)
            advance(record)

        try:
            if config.rate == "bag":
                played = run.bag.timeline.played
                times = {f.number: played(f.time_ns) for f in run.contents.frames if f.number in tasks}
                at_bag_speed(all_pictures, times, edge.deciders, keep, run.passage)
            else:
                by_frames(all_pictures, edge.deciders, keep, run.passage)
        finally:
            run.machine.update(describe_energy(edge.meter))
