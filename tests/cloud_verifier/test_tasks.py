"""A session's queue: drafts that wait together are taken as one draft, and nothing else is."""

from __future__ import annotations

import pytest

from cloud_verifier.engine.tasks import (
    CloseTask,
    OpenTask,
    PauseTask,
    SessionQueue,
    SessionTask,
    Task,
    without_the_superseded,
)
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import DraftUp, More, Open, SampledUp
from specdec.options import GenerationOptions

ONE = (b"a", 1)
OPENING = Open(1, False, sampling_to_wire(GenerationOptions(9)), [1])


def draft(round_: int, base: int, *ids: int, epoch: int = 0) -> SessionTask:
    return SessionTask(ONE, DraftUp(1, round_, base, list(ids), None, epoch), float(round_))


def sampled(round_: int, base: int, *ids: int, fix: int | None = None) -> SessionTask:
    return SessionTask(ONE, SampledUp(1, round_, base, list(ids), b"q" * 4 * len(ids), fix), float(round_))


def queue_of(*tasks: SessionTask) -> SessionQueue:
    tasks_queue = SessionQueue()
    for task in tasks:
        tasks_queue.put(task)
    return tasks_queue


def test_drafts_right_behind_each_other_are_one() -> None:
    tasks = queue_of(
        draft(1, 5, 10, 11), draft(2, 7, 12), draft(3, 8, 13)
    )
    task, taken = tasks.get()
    assert len(taken) == 3 and task == SessionTask(ONE, DraftUp(1, 3, 5, [10, 11, 12, 13]), 1.0)
    assert not len(tasks)


def test_sampled_drafts_keep_their_probabilities_in_order() -> None:
    tasks = queue_of(sampled(1, 0, 1, 2), sampled(2, 2, 3))
    message = tasks.get()[0].message  # type: ignore[union-attr]
    assert message.ids == [1, 2, 3] and message.q == b"q" * 12 and message.round == 2


@pytest.mark.parametrize(
    "second",
    [
        draft(2, 8, 12),
        draft(2, 7, 12, epoch=1),
        SessionTask(ONE, DraftUp(1, 2, 7, [12], [-1]), 2.0),
        SessionTask(ONE, More(1, 1), 2.0),
        sampled(2, 7, 12),
    ],
    ids=["gap", "epoch", "tree", "more", "sampled"],
)
def test_what_does_not_go_on_right_behind_stays_by_itself(second: SessionTask) -> None:
    first, third = draft(1, 5, 10, 11), draft(3, 7, 12)
    tasks = queue_of(first, second, third)
    assert [tasks.get()[0], tasks.get()[0], tasks.get()[0]] == [first, second, third]


def test_drafts_are_joined_to_no_more_than_a_forward_takes_at_once() -> None:
    drafts = [draft(number + 1, 40 * number, *range(40)) for number in range(3)]
    tasks = queue_of(*drafts)
    assert [tasks.get()[0] for _ in drafts] == drafts


def test_a_recovered_token_begins_a_draft_of_its_own() -> None:
    tasks = queue_of(sampled(1, 0, 1, 2), sampled(2, 2, 3, fix=9))
    assert len(tasks.get()[0].message.ids) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("last", [CloseTask(ONE), OpenTask(ONE, OPENING, 9.0)], ids=["close", "open"])
def test_opening_or_closing_a_session_takes_the_place_of_what_came_for_it(last: Task) -> None:
    other = SessionTask((b"b", 1), DraftUp(1, 1, 0, [7]), 1.0)
    came = [OpenTask(ONE, OPENING, 0.0), draft(1, 5, 10), other, PauseTask(ONE, True), last, draft(2, 0, 3)]
    kept, dropped = without_the_superseded(came)
    assert kept == came[2:] and dropped == came[:2]
