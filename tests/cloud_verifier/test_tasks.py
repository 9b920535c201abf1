"""The engine's queue: drafts of one session that wait together are taken as one draft, and nothing else is."""

from __future__ import annotations

import threading

import pytest

from cloud_verifier.engine.tasks import (
    CloseTask,
    OpenTask,
    PauseTask,
    SessionKey,
    Task,
    TaskQueue,
    VerifyTask,
)
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import DraftUp, More, Open, SampledUp
from specdec.options import GenerationOptions

ONE, TWO = (b"a", 1), (b"b", 1)
opening = Open(1, False, sampling_to_wire(GenerationOptions(9)), [1])


def draft(key: SessionKey, round_: int, base: int, *ids: int, epoch: int = 0) -> VerifyTask:
    return VerifyTask(key, DraftUp(key[1], round_, base, list(ids), None, epoch), float(round_))


def sampled(round_: int, base: int, *ids: int, fix: int | None = None) -> VerifyTask:
    return VerifyTask(ONE, SampledUp(1, round_, base, list(ids), b"q" * 4 * len(ids), fix), float(round_))


def queue_of(*tasks: VerifyTask | CloseTask) -> TaskQueue:
    tasks_queue = TaskQueue()
    for task in tasks:
        tasks_queue.put(task)
    return tasks_queue


def test_drafts_right_behind_each_other_are_one() -> None:
    tasks = queue_of(
        draft(ONE, 1, 5, 10, 11), draft(TWO, 1, 0, 7), draft(ONE, 2, 7, 12), draft(ONE, 3, 8, 13)
    )
    taken = tasks.get()
    assert taken == VerifyTask(ONE, DraftUp(1, 3, 5, [10, 11, 12, 13]), 1.0)
    assert tasks.get() == draft(TWO, 1, 0, 7)


def test_sampled_drafts_keep_their_probabilities_in_order() -> None:
    tasks = queue_of(sampled(1, 0, 1, 2), sampled(2, 2, 3))
    message = tasks.get().message  # type: ignore[union-attr]
    assert message.ids == [1, 2, 3] and message.q == b"q" * 12 and message.round == 2


@pytest.mark.parametrize(
    "second",
    [
        draft(ONE, 2, 8, 12),
        draft(ONE, 2, 7, 12, epoch=1),
        VerifyTask(ONE, DraftUp(1, 2, 7, [12], [-1]), 2.0),
        VerifyTask(ONE, More(1, 1), 2.0),
        sampled(2, 7, 12),
    ],
    ids=["gap", "epoch", "tree", "more", "sampled"],
)
def test_what_does_not_go_on_right_behind_stays_by_itself(second: VerifyTask | CloseTask) -> None:
    first, third = draft(ONE, 1, 5, 10, 11), draft(ONE, 3, 7, 12)
    tasks = queue_of(first, second, third)
    assert [tasks.get(), tasks.get(), tasks.get()] == [first, second, third]


@pytest.mark.parametrize("last", [CloseTask(ONE), OpenTask(ONE, opening, 9.0)], ids=["close", "open"])
def test_opening_or_closing_a_session_takes_the_place_of_what_waits_for_it(last: Task) -> None:
    out: list[Task] = []
    tasks = TaskQueue(out.append)
    waiting = [OpenTask(ONE, opening, 0.0), draft(ONE, 1, 5, 10), draft(TWO, 1, 0, 7), PauseTask(ONE, True)]
    for task in (*waiting, last):
        tasks.put(task)
    assert out == waiting[:2], "given back at once"
    assert [tasks.get(), tasks.get(), tasks.get()] == [waiting[2], waiting[3], last]
    assert tasks.poll() is None and out == [*waiting, last], "each is told of once"


def test_drafts_that_are_joined_are_each_told_of() -> None:
    out: list[Task] = []
    tasks = TaskQueue(out.append)
    drafts = [draft(ONE, 1, 5, 10, 11), draft(ONE, 2, 7, 12)]
    for task in drafts:
        tasks.put(task)
    tasks.get()
    assert out == drafts


def test_a_recovered_token_begins_a_draft_of_its_own() -> None:
    tasks = queue_of(sampled(1, 0, 1, 2), sampled(2, 2, 3, fix=9))
    assert len(tasks.get().message.ids) == 2  # type: ignore[union-attr]


def test_waits_for_work_from_another_thread() -> None:
    tasks = TaskQueue()
    threading.Timer(0.05, lambda: tasks.put(CloseTask(ONE))).start()
    assert tasks.get() == CloseTask(ONE)
