# SPDX-License-Identifier: Apache-2.0
"""The parent's side of the workers: submit a job, get a future.

Each worker has a thread that submits its jobs one by one, waits for each, and replaces the process if a limit has ended
it. Callers never wait here. Cancelling a running job ends the process that runs it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from specdec.errors import ModelError, OptionsError
from specdec.isolation import wire
from specdec.isolation.accounts import Account, charged

T = TypeVar("T")
_FREELY_S = 1.0
"""Jobs of a client that has lately used more than this run at low priority from the start."""
_QUICK_S = 0.15
"""A process that spends longer than this on a job runs at low priority from then on."""
_LET_RUN_S = 0.03
"""A cancelled job may run for this much longer."""
_ENDING_S = 1.0
"""Time for a launcher to end its workers."""
_OVERDUE_S = 30.0
"""No job should take this long, start of the process included."""
_GRACE_S = 0.5
"""A worker ends itself at its limits, unless it is compromised; it is then killed after this extra time."""


@dataclass(frozen=True)
class Limit:
    """Limits of a job: CPU seconds and elapsed seconds. Its worker is killed beyond them."""

    cpu_s: float
    wall_s: float


class OverLimit(ModelError):
    """A job exceeded its limits on time or memory; its worker was killed.

    certain: the job itself used that much CPU time or memory. Otherwise the machine may have been busy.
    """

    def __init__(self, text: str, certain: bool) -> None:
        super().__init__(text)
        self.certain = certain


class JobCancelled(OverLimit):
    """A job was cancelled, because no caller wanted it any more or in favour of another client. This says nothing about
    the job: it may be submitted again.
    """

    def __init__(self) -> None:
        super().__init__("cancelled in favour of another client: try again later", certain=False)


class Launcher:
    """Forks workers. Its process is started at first use, or by `warm_up`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._vocabularies: list[wire.Vocabulary] = []
        self._numbers: list[int] = []
        self._decoder = msgspec.msgpack.Decoder(wire.Launched)
        self._guard: tuple[int, float] | None = None
        self._closed = False
        self._workers: weakref.WeakSet[Worker] = weakref.WeakSet()
        atexit.register(self.close)

    def warm_up(self, grammars: Callable[[], int] | None = None) -> None:
        """Start the process in a background thread, so that the first job waits less. grammars: prepares the vocabulary
        for grammars.
        """
        threading.Thread(target=self._start_quietly, args=[grammars], name="launcher", daemon=True).start()

    def end_in_time(self, drain_s: float) -> None:
        """Ensure that this process ends within drain_s + GRACE_S of SIGTERM, whatever its threads do, and within
        GRACE_S of SIGINT or a second signal. Call in the main thread, before anything is started.

        Python runs signal handlers between two bytecodes of the main thread, and a library call may block all threads.
        So the signal's number is sent through a pipe to the launcher process, which kills this one if needed.
        """
        reads, self._signals = os.pipe()
        os.set_blocking(self._signals, False)
        self._guard = reads, drain_s
        self.hear_signals()

    def hear_signals(self) -> None:
        """Have signals sent through the pipe again, after an event loop (uvloop) has put its own in the place."""
        signal.set_wakeup_fd(self._signals, warn_on_full_buffer=False)

    def vocabulary(self, tokenizer: str, vocab_size: int, eos_ids: list[int]) -> int:
        """Register a vocabulary for workers; returns its number."""
        with self._lock:
            self._vocabularies.append(wire.Vocabulary(tokenizer, vocab_size, eos_ids))
            return len(self._vocabularies) - 1

    def fork(self, memory: int, vocabulary: int | None = None) -> tuple[int, socket.socket, int]:
        """Fork a worker; returns its process id, the socket for its jobs, and the vocabulary's number in the launcher.

        Raises ModelError for a vocabulary that grammars cannot be compiled for, and OSError.
        """
        with self._lock:
            for attempt in range(2):
                try:
                    number = 0 if vocabulary is None else self._learnt(vocabulary)
                    ours, theirs = socket.socketpair()
                    with theirs:
                        answer = self._ask(wire.Fork(memory), theirs)
                    return answer.number, ours, number
                except (OSError, ValueError, msgspec.MsgspecError):
                    self._end()  # the launcher may have been killed from outside: start another
                    if attempt or self._closed:
                        raise
        raise AssertionError("both attempts neither returned nor raised")

    def reap(self, pid: int) -> int:
        """Reap a worker that was killed or has exited; returns its exit code, like subprocess's returncode."""
        with self._lock, contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
            return self._ask(wire.Reap(pid)).number
        return 0

    def watch(self, worker: Worker) -> None:
        """Include a worker in the checks of `wrong`."""
        self._workers.add(worker)

    def wrong(self, now_s: float) -> str:
        """Describe a worker that is stuck in a job; "" if none is. now_s: time.monotonic()."""
        for worker in list(self._workers):
            began_s = worker.began_s
            if began_s is not None and now_s - began_s > _OVERDUE_S:
                return f"a worker has been at a job for {now_s - began_s:.0f} s"
        return ""

    @property
    def pid(self) -> int:
        """Process id of the launcher; 0 if none runs."""
        process = self._process
        return 0 if process is None else process.pid

    def close(self) -> None:
        """End the process; workers exit when their sockets are closed."""
        self._closed = True
        with self._lock:
            self._end()

    def _start_quietly(self, grammars: Callable[[], int] | None) -> None:
        if grammars is not None:
            with contextlib.suppress(ModelError):  # the client that sent the grammar gets the error
                grammars()
        with self._lock, contextlib.suppress(OSError, ValueError, ModelError, msgspec.MsgspecError):
            self._started()
            for number in range(len(self._vocabularies)):
                self._learnt(number)

    def _started(self) -> socket.socket:
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        self._end()
        if self._closed:
            raise OSError("the launcher is closed")
        ours, theirs = socket.socketpair()
        # A worker must not inherit secrets from the environment: no keys, no addresses.
        kept = {name: value for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if (value := os.environ.get(name))}
        alone = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
        with theirs:
            guard, drain_s = self._guard or (-1, 0.0)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "specdec.isolation.child", *map(str, (theirs.fileno(), guard, drain_s))],
                pass_fds=[theirs.fileno(), *([guard] if self._guard else [])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**kept, **alone, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._control = ours
        self._numbers = []
        return ours

    def _learnt(self, vocabulary: int) -> int:
        self._started()
        while len(self._numbers) <= vocabulary:
            answer = self._ask(self._vocabularies[len(self._numbers)])
            if answer.number < 0:
                raise ModelError(answer.text)
            self._numbers.append(answer.number)
        return self._numbers[vocabulary]

    def _ask(self, message: msgspec.Struct, descriptor: socket.socket | None = None) -> wire.Launched:
        control = self._started()
        if descriptor is not None:
            data = msgspec.msgpack.encode(message)
            socket.send_fds(control, [len(data).to_bytes(4, "little")], [descriptor.fileno()])
            control.sendall(data)
        else:
            wire.send(control, message)
        frame = wire.receive(control)
        if frame is None:
            raise OSError("the launcher has ended")
        return self._decoder.decode(frame)

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(_ENDING_S)  # it ends its workers first
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


@dataclass
class _QueuedJob:
    """A waiting or running job. body: makes the message when its turn comes."""

    body: Callable[[], Any]
    limit: Limit
    account: Account | None
    again: Callable[[], Any] | None = None
    beside: bytes | None = None
    future: Future[wire.WorkerReply] = field(default_factory=Future)


class Ticket(Future[T]):
    """The future result of a job. `abandon` says that no caller wants it; if the job runs, its process is ended."""

    def __init__(self, abandon: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.abandon = abandon


def FIRST() -> None:
    """Body of a job that is complete once the worker's first job is done."""


class Worker:
    """A worker process, replaced when needed, and the thread that waits for it."""

    def __init__(
        self,
        launcher: Launcher,
        memory: int,
        what: str,
        first: tuple[Callable[[int], Any], Limit, Callable[[], int]] | None = None,
        name: str = "worker",
    ) -> None:
        """Create a worker; its process is started with the first job.

        Args:
            launcher: Forks the process.
            memory: Bytes that the process may use beyond the launcher's size.
            what: Subject of error messages: "the grammar".
            first: The job that each new process gets before all others: a function of the vocabulary's number in the
                launcher, the job's limit, and a function that returns the vocabulary's number here.
            name: Name of the thread.
        """
        self._launcher = launcher
        self._memory = memory
        self._what = what
        self._first = first
        self._jobs: queue.SimpleQueue[_QueuedJob | None] = queue.SimpleQueue()
        self._decoder = msgspec.msgpack.Decoder(wire.WorkerReply)
        self._lock = threading.Lock()
        self._running: _QueuedJob | None = None
        self._killed_for: Future[wire.WorkerReply] | None = None
        self._pid = 0
        self._handle = -1
        self._slow = False
        self._socket: socket.socket | None = None
        self.began_s: float | None = None
        launcher.watch(self)
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def ask(
        self,
        body: Callable[[], Any],
        limit: Limit,
        again: Callable[[], Any] | None = None,
        beside: bytes | None = None,
    ) -> Future[wire.WorkerReply]:
        """Submit a job.

        Args:
            body: Makes the message when the job's turn comes.
            limit: Its limits.
            again: Makes a self-contained message, for a worker that lacks the earlier state.
            beside: Bytes sent along.

        Returns:
            A future, which raises OverLimit (JobCancelled included), OptionsError or ModelError.

        Raises:
            OverSpent: The client's budget is used up.
        """
        account = charged.get()
        if account is not None:
            account.check()
        asked = _QueuedJob(body, limit, account, again, beside)
        self._jobs.put(asked)
        return asked.future

    def cancel(self, future: Future[wire.WorkerReply]) -> None:
        """Cancel a job. If it is running and does not finish at once, its process is ended."""
        with self._lock:
            running = self._running is not None and self._running.future is future
        if not running:
            future.cancel()
            return
        # Most jobs are nearly done, and a warm process is worth more than the rest of its job.
        timer = threading.Timer(_LET_RUN_S, self._kill_for, [future])
        timer.daemon = True
        timer.start()

    def _kill_for(self, future: Future[wire.WorkerReply]) -> None:
        with self._lock:
            if self._running is not None and self._running.future is future:
                self._killed_for = future
                self._kill()

    def close(self) -> None:
        """End the worker after its queued jobs."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (asked := self._jobs.get()) is not None:
            if asked.future.set_running_or_notify_cancel():
                try:
                    reply = self._answer(asked)
                except BaseException as error:
                    asked.future.set_exception(error)
                else:
                    asked.future.set_result(reply)
                    del reply
            del asked  # release its data before waiting for the next job
        self._end()

    def _answer(self, asked: _QueuedJob) -> wire.WorkerReply:
        with self._lock:
            self._running = asked
        self.began_s = time.monotonic()
        try:
            try:
                return self._tried(asked)
            except OverLimit:
                with self._lock:
                    killed_for, self._killed_for = self._killed_for, None
                if killed_for is None:
                    raise
                if killed_for is asked.future:
                    raise JobCancelled from None
                return self._tried(asked)  # the kill was meant for the previous job
        finally:
            self.began_s = None
            with self._lock:
                self._running = None
            if self._slow and self._first is None:
                self._end()  # a new process starts with normal priority

    def _tried(self, asked: _QueuedJob) -> wire.WorkerReply:
        reply = self._begin(asked) if self._socket is None else None
        if asked.body is FIRST:
            return reply or wire.WorkerReply()
        reply = self._exchange(asked.body(), asked.limit, asked.account, asked.beside)
        if reply.status == wire.AGAIN and asked.again is not None:
            reply = self._exchange(asked.again(), asked.limit, asked.account)
        return self._checked(reply)

    def _begin(self, asked: _QueuedJob) -> wire.WorkerReply | None:
        """Start a new process and run its first job."""
        try:
            vocabulary = None if self._first is None else self._first[2]()
            pid, connection, number = self._launcher.fork(self._memory, vocabulary)
            handle = self._handle_of(pid, connection)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise ModelError(
                f"no process can be started to read {self._what} ({error}): free memory or raise the process limit"
            ) from error
        with self._lock:
            self._pid, self._socket = pid, connection
            self._slow, self._handle = False, handle
        if self._first is None:
            return None
        make, limit, _ = self._first
        try:
            return self._checked(self._exchange(make(number), limit, asked.account))
        except (ModelError, OptionsError):
            self._end()
            raise

    def _handle_of(self, pid: int, connection: socket.socket) -> int:
        """A pidfd, which always names this one process: process ids are reused.

        Raises OSError if there is none; the process is then ended.
        """
        try:
            return os.pidfd_open(pid)
        except OSError:
            connection.close()
            self._launcher.reap(pid)
            raise

    def _exchange(
        self, body: Any, limit: Limit, account: Account | None, beside: bytes | None = None
    ) -> wire.WorkerReply:
        connection = self._socket
        assert connection is not None
        began_s = time.monotonic()
        until_s = began_s + limit.wall_s + _GRACE_S
        took_s = limit.cpu_s
        try:
            connection.settimeout(limit.wall_s + _GRACE_S)
            wire.send(connection, wire.WorkerJob(limit.cpu_s, limit.wall_s, body), beside)
            in_debt = account is not None and account.owed_s > _FREELY_S
            if in_debt or not select.select([connection], [], [], _QUICK_S)[0]:
                self._give_way()
            frame = wire.receive(connection, until_s=until_s)
            if frame is None:
                raise OSError("the worker has exited")
            reply = self._decoder.decode(frame)
            took_s = min(max(reply.cpu_s, 0.0), limit.wall_s)
            return reply
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            took_s = min(took_s, time.monotonic() - began_s)
            code = self._end()
            certain = code not in (-signal.SIGALRM, -signal.SIGKILL, 0)
            text = f"{self._what} takes more time or memory than is allowed: send a simpler one"
            raise OverLimit(text, certain) from error
        finally:
            if account is not None:
                account.spend(took_s)

    def _checked(self, reply: wire.WorkerReply) -> wire.WorkerReply:
        if reply.status == wire.OK:
            return reply
        text = reply.text[:1000]
        raise OptionsError(text) if reply.status == wire.REFUSED else ModelError(text)

    def _kill(self) -> None:
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _give_way(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._pid:
                os.setpriority(os.PRIO_PROCESS, self._pid, 19)
                self._slow = True

    def _end(self) -> int:
        """End the process; returns its exit code."""
        with self._lock:
            pid, connection = self._pid, self._socket
            if connection is None:
                return 0
            self._kill()
            os.close(self._handle)
            connection.close()
            self._pid, self._handle, self._socket = 0, -1, None
        return self._launcher.reap(pid)
