# SPDX-License-Identifier: Apache-2.0
"""Distributes jobs to single-threaded processes. However the loop over the jobs ends, no process outlives it."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from specdec.errors import first_line
from specnav.errors import is_for_users
from specnav.recipes.errors import TrainingError
from specnav.recipes.loop import parent_lives


def shared_out(
    context: Any, begin: Callable[..., Any], given: tuple, jobs: Sequence[Any], workers: int
) -> Iterator[Any]:
    """Yield the results of the jobs in order of completion.

    Args:
        context: a multiprocessing context.
        begin: called once by every process with `given`; returns the function that does a job.
        given: arguments of `begin`.
        jobs: arguments of that function.
        workers: number of processes.

    Raises:
        TrainingError: if a process fails, with its own message if there is one.
    """
    waiting, reports = context.Queue(), context.Queue()
    for job in jobs:
        waiting.put(job)
    crew = [
        context.Process(target=_work, args=(begin, given, waiting, reports), daemon=True)
        for _ in range(min(workers, len(jobs)))
    ]
    try:
        for worker in crew:
            worker.start()
        for _ in jobs:
            while True:
                try:
                    found, error = reports.get(timeout=1.0)
                    break
                except queue.Empty:
                    if not all(worker.is_alive() for worker in crew):
                        raise TrainingError("a process died: run the same command again to continue") from None
            if error:
                raise TrainingError(error)
            yield found
    finally:
        for worker in crew:
            worker.terminate()
            worker.join()
        for line in (waiting, reports):
            line.cancel_join_thread()
            line.close()


def _work(begin: Callable[..., Any], given: tuple, waiting: Any, reports: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its workers
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    torch.set_num_threads(1)
    try:
        do = begin(*given)
        while True:
            reports.put((do(waiting.get()), ""))
    except Exception as error:  # reported to the parent, which stops everything
        name = "" if is_for_users(error) else f"a process failed: {type(error).__name__}: "
        reports.put((None, name + first_line(error)))


def _end_with_the_parent() -> None:
    """Exit with the parent, so that no process of a killed command writes in parallel with the next command."""
    while parent_lives():
        time.sleep(1.0)
    os._exit(1)
