"""Jobs that processes share out: all are done, and a process that fails or dies ends them with one line."""

import multiprocessing
import os
import signal

import pytest

from specnav.recipes.crew import shared_out
from specnav.recipes.errors import TrainingError


def begin(third):
    return lambda job: third() if job == 3 else job


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def fail():
    raise ValueError("no room\nfor it")


@pytest.mark.slow
@pytest.mark.parametrize(("third", "said"), [(fail, "failed: ValueError: no room$"), (die, "process died")])
def test_a_process_that_does_not_come_through_ends_the_others_with_one_line(third, said):
    with pytest.raises(TrainingError, match=said):
        list(shared_out(multiprocessing.get_context("fork"), begin, (third,), range(6), 2))
    assert not multiprocessing.active_children()


def test_every_job_is_done_once():
    context = multiprocessing.get_context("fork")
    assert sorted(shared_out(context, begin, (lambda: 3,), range(6), 2)) == [0, 1, 2, 3, 4, 5]
