"""A session's queue: drafts that wait together are taken as one draft, and nothing else is."""

from __future__ import annotations

import pytest

from cloud_verifier.engine.tasks import SessionQueue, VerifyTask
from specdec.link.wire import DraftUp, More, SampledUp

ONE = (b"a", 1)


def draft(round_: int, base: int, *ids: int, epoch: int = 0) -> VerifyTask:
    return VerifyTask(ONE, DraftUp(1, round_, base, list(ids), None, epoch), float(round_))


def sampled(round_: int, base: int, *ids: int, fix: int | None = None) -> VerifyTask:
    return VerifyTask(ONE, SampledUp(1, round_, base, list(ids), b"q" * 4 * len(ids), fix), float(round_))


def queue_of(*tasks: VerifyTask) -> SessionQueue:
    tasks_queue = SessionQueue()
    for task in tasks:
        tasks_queue.put(task)
    return tasks_queue


def test_drafts_right_behind_each_other_are_one() -> None:
    tasks = queue_of(
        draft(1, 5, 10, 11), draft(2, 7, 12), draft(3, 8, 13)
    )
    taken = tasks.get()
    assert taken == VerifyTask(ONE, DraftUp(1, 3, 5, [10, 11, 12, 13]), 1.0)
    assert not len(tasks)


def test_sampled_drafts_keep_their_probabilities_in_order() -> None:
    tasks = queue_of(sampled(1, 0, 1, 2), sampled(2, 2, 3))
    message = tasks.get().message  # type: ignore[union-attr]
    assert message.ids == [1, 2, 3] and message.q == b"q" * 12 and message.round == 2


@pytest.mark.parametrize(
    "second",
    [
        draft(2, 8, 12),
        draft(2, 7, 12, epoch=1),
        VerifyTask(ONE, DraftUp(1, 2, 7, [12], [-1]), 2.0),
        VerifyTask(ONE, More(1, 1), 2.0),
        sampled(2, 7, 12),
    ],
    ids=["gap", "epoch", "tree", "more", "sampled"],
)
def test_what_does_not_go_on_right_behind_stays_by_itself(second: VerifyTask) -> None:
    first, third = draft(1, 5, 10, 11), draft(3, 7, 12)
    tasks = queue_of(first, second, third)
    assert [tasks.get(), tasks.get(), tasks.get()] == [first, second, third]


def test_a_recovered_token_begins_a_draft_of_its_own() -> None:
    tasks = queue_of(sampled(1, 0, 1, 2), sampled(2, 2, 3, fix=9))
    assert len(tasks.get().message.ids) == 2  # type: ignore[union-attr]
