# SPDX-License-Identifier: Apache-2.0
"""Fair scheduling of jobs: a slow job does not block other clients.

The next job is one of the client with the fewest running jobs and the least time used. A slow job no longer counts
against the limit on quick jobs, so another can start beside it, up to a total. Beyond that, a slow job is cancelled in
favour of a client that has used less.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any

from specdec.isolation import wire
from specdec.isolation.accounts import Account, charged
from specdec.isolation.workers import JobCancelled, Ticket, Worker

QUICK_S = 0.15
"""A job that runs longer is slow: it makes room for others, and may be cancelled if another client waits."""
OWING_S, MOST_OWING = 1.0, 2
"""Clients that used more than OWING_S lately share MOST_OWING running jobs, so that others get a turn at once."""

Begin = Callable[[], tuple[Worker, Future[wire.WorkerReply]]]


@dataclass(eq=False)
class _Job:
    """A waiting or running job. large: only one large job runs at a time."""

    begin: Begin
    read: Callable[[wire.WorkerReply], Any]
    account: Account | None
    large: bool
    ticket: Ticket[Any]
    worker: Worker | None = None
    asked: Future[wire.WorkerReply] | None = None
    began_s: float = 0.0


class Turns:
    """Schedules jobs. Thread-safe and non-blocking."""

    def __init__(self, quick: int, most: int, name: str) -> None:
        """quick: most running jobs that are not yet slow. most: most running jobs."""
        self._quick = quick
        self._most = most
        self._name = name
        self._lock = threading.Condition()
        self._waiting: list[_Job] = []
        self._running: list[_Job] = []
        self._thread: threading.Thread | None = None

    def take(self, begin: Begin, read: Callable[[wire.WorkerReply], Any], large: bool = False) -> Ticket[Any]:
        """Queue a job for the account charged in this thread.

        Args:
            begin: Starts the job when its turn comes.
            read: Parses the reply, in a thread of the worker.
            large: Whether only one such job may run at a time.

        Returns:
            A ticket for what `read` returns.

        Raises:
            OverSpent: The account's budget is used up.
        """
        account = charged.get()
        if account is not None:
            account.check()
        job = _Job(begin, read, account, large, Ticket())
        job.ticket.abandon = lambda: self._abandon(job)
        with self._lock:
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._lock.notify()
        return job.ticket

    def _run(self) -> None:
        while True:
            with self._lock:
                while (job := self._next()) is None:
                    self._lock.wait(QUICK_S / 4 if self._waiting else None)
                self._waiting.remove(job)
                self._running.append(job)
                job.began_s = time.monotonic()
            self._begin(job)
            del job  # release its data, for example a picture, before waiting

    def _begin(self, job: _Job) -> None:
        token = charged.set(job.account)
        try:
            job.worker, job.asked = job.begin()
        except BaseException as error:
            self._done(job, error)
        else:
            job.asked.add_done_callback(lambda _: self._done(job, None))
        finally:
            charged.reset(token)

    def _done(self, job: _Job, error: BaseException | None) -> None:
        with self._lock:
            self._running.remove(job)
            self._lock.notify()
        try:
            if error is not None:
                raise error
            assert job.asked is not None
            value = job.read(job.asked.result())
        except CancelledError:  # cancelled before its worker had started it
            job.ticket.set_exception(JobCancelled())
        except BaseException as met:
            job.ticket.set_exception(met)
        else:
            job.ticket.set_result(value)

    def _next(self) -> _Job | None:
        """The job to start now, if any; may cancel a slow job in its way."""
        if not self._waiting:
            return None
        slow = [job for job in self._running if job.began_s <= time.monotonic() - QUICK_S]
        has_room = len(self._running) < self._most and len(self._running) - len(slow) < self._quick
        waiting = self._waiting
        if sum(map(_owes, self._running)) >= MOST_OWING:
            waiting = [job for job in waiting if not _owes(job)]
            if not waiting:
                return None
        best = min(waiting, key=self._burden)  # ties: first come
        in_the_way = slow
        if best.large and any(job.large for job in self._running):
            in_the_way = [job for job in slow if job.large]
            small = [job for job in waiting if not job.large]
            if small and has_room:
                return min(small, key=self._burden)
        elif has_room:
            return best
        heaviest = max(in_the_way, key=self._burden, default=None)
        if heaviest is None or self._burden(best) >= self._burden(heaviest):
            return None
        if heaviest.worker is not None and heaviest.asked is not None:
            heaviest.worker.cancel(heaviest.asked)
        return None

    def _burden(self, job: _Job) -> tuple[int, int]:
        """A client's number of other running jobs, and its recent use in half seconds, running jobs included."""
        if job.account is None:
            return 0, 0
        mine = [one for one in self._running if one.account is job.account]
        runs_s = sum(time.monotonic() - one.began_s for one in mine)
        return len([one for one in mine if one is not job]), int(2 * (job.account.owed_s + runs_s))

    def _abandon(self, job: _Job) -> None:
        with self._lock:
            waiting = job in self._waiting
            if waiting:
                self._waiting.remove(job)
        if waiting:
            job.ticket.set_exception(JobCancelled())
        elif job.worker is not None and job.asked is not None:
            job.worker.cancel(job.asked)


def _owes(job: _Job) -> bool:
    return job.account is not None and job.account.owed_s >= OWING_S
