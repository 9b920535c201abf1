# SPDX-License-Identifier: Apache-2.0
"""Workers as the process that uses them sees them: hand over a job, get a future.

A thread a worker hands its jobs over one by one, waits for each, and replaces the process where a limit has ended it.
Who asks never waits here. A future that is cancelled while its job runs ends the process that runs it.
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
"""A client that has lately used more gives way from the start of its jobs."""
_QUICK_S = 0.15
"""A process that takes longer over a job gives way to all others from then on."""
_LET_RUN_S = 0.03
"""A job that no caller wants any more may go on for this long."""
_ENDING_S = 1.0
"""That a launcher may take to end its workers."""
_OVERDUE_S = 30.0
"""No job takes so long, those that begin its process included."""
_GRACE_S = 0.5
"""A worker ends by itself at its limits, unless it has been taken over: then it is killed so much later."""


@dataclass(frozen=True)
class Limit:
    """What a job may take: seconds of a CPU, and in all. Beyond it its worker is killed."""

    cpu_s: float
    wall_s: float


class OverLimit(ModelError):
    """A job took more time or memory than is allowed; its worker was killed.

    certain: it took so much of a CPU or of memory; otherwise the machine may have been busy.
    """

    def __init__(self, text: str, certain: bool) -> None:
        super().__init__(text)
        self.certain = certain


class Launcher:
    """Forks workers. Its process is started when it is first needed, or by `warm_up`; for any threads."""

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
        """Start the process, in a thread of its own: what comes first need not wait for it so long. grammars: prepares
        their vocabulary.
        """
        threading.Thread(target=self._start_quietly, args=[grammars], name="launcher", daemon=True).start()

    def end_in_time(self, drain_s: float) -> None:
        """See to it that this process ends within drain_s and GRACE_S of SIGTERM, whatever its threads are doing, and
        within GRACE_S of SIGINT or a second signal. To be called in the main thread, before anything is started.

        Python runs a signal's handler between two steps of the main thread, and a call into a library may keep all
        threads from going on. The signal's number goes through a pipe to the launcher's process instead.
        """
        reads, writes = os.pipe()
        os.set_blocking(writes, False)
        signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
        self._guard = reads, drain_s

    def vocabulary(self, tokenizer: str, vocab_size: int, eos_ids: list[int]) -> int:
        """A vocabulary that workers shall know; returns its number."""
        with self._lock:
            self._vocabularies.append(wire.Vocabulary(tokenizer, vocab_size, eos_ids))
            return len(self._vocabularies) - 1

    def fork(self, memory: int, vocabulary: int | None = None) -> tuple[int, socket.socket, int]:
        """A new worker: its process id, the socket that its jobs go into, and the vocabulary's number there.

        Raises ModelError for a vocabulary that no grammar can be compiled for, OSError.
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
                    self._end()  # the program that ended the launcher need not end what uses it
                    if attempt or self._closed:
                        raise
        raise AssertionError("two attempts, and neither came to an end")

    def reap(self, pid: int) -> int:
        """A worker was killed, or has ended; returns what has ended it, as subprocess's returncode."""
        with self._lock, contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
            return self._ask(wire.Reap(pid)).number
        return 0

    def watch(self, worker: Worker) -> None:
        """Have a worker looked at by `wrong`."""
        self._workers.add(worker)

    def wrong(self, now_s: float) -> str:
        """What about the workers does not come to an end, "" where all do. now_s: of time.monotonic."""
        for worker in list(self._workers):
            began_s = worker.began_s
            if began_s is not None and now_s - began_s > _OVERDUE_S:
                return f"a worker has been at a job for {now_s - began_s:.0f} s"
        return ""

    @property
    def pid(self) -> int:
        """Of its process; 0 where there is none."""
        process = self._process
        return 0 if process is None else process.pid

    def close(self) -> None:
        """End the process; workers end when their sockets are closed."""
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
            raise OSError("the process ends")
        ours, theirs = socket.socketpair()
        # Nothing of this process's environment that a worker could tell: no keys, no addresses.
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
    """A job that waits, or runs. body: called when its turn comes."""

    body: Callable[[], Any]
    limit: Limit
    account: Account | None
    again: Callable[[], Any] | None = None
    beside: bytes | None = None
    future: Future[wire.WorkerReply] = field(default_factory=Future)


class Ticket(Future[T]):
    """What comes of a job. `abandon`: no caller wants it any more; where it runs, its process ends."""

    def __init__(self, abandon: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.abandon = abandon


def FIRST() -> None:
    """The body of a job that is done with the worker's first."""


class Worker:
    """One process at a time, and the thread that waits for it.

    first: the job that each new process gets before all others, with its limit.
    """

    def __init__(
        self,
        launcher: Launcher,
        memory: int,
        what: str,
        first: tuple[Callable[[int], Any], Limit, Callable[[], int]] | None = None,
        name: str = "worker",
    ) -> None:
        """what: begins errors: "the grammar". first: the job by the vocabulary's number in the launcher's process, its
        limit, and what gives the vocabulary's number here.
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
        """Hand a job over. body: makes it when its turn comes. again: the same job for a worker that has forgotten what
        went before. beside: bytes that go along. The future raises OverLimit, OptionsError, ModelError.

        Raises OverSpent for a client in debt.
        """
        account = charged.get()
        if account is not None:
            account.check()
        asked = _QueuedJob(body, limit, account, again, beside)
        self._jobs.put(asked)
        return asked.future

    def cancel(self, future: Future[wire.WorkerReply]) -> None:
        """No caller wants it any more: where it goes on running, its process ends."""
        with self._lock:
            running = self._running is not None and self._running.future is future
        if not running:
            future.cancel()
            return
        # Most are as good as done, and a process that is ready is worth more than the rest of its job.
        timer = threading.Timer(_LET_RUN_S, self._kill_for, [future])
        timer.daemon = True
        timer.start()

    def _kill_for(self, future: Future[wire.WorkerReply]) -> None:
        with self._lock:
            if self._running is not None and self._running.future is future:
                self._killed_for = future
                self._kill()

    def close(self) -> None:
        """End, once what was asked is answered."""
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
            del asked  # nothing of it is kept until the next one comes
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
                if killed_for is None or killed_for is asked.future:
                    raise
                return self._tried(asked)  # the process was ended because of the job before this one
        finally:
            self.began_s = None
            with self._lock:
                self._running = None
            if self._slow and self._first is None:
                self._end()  # a new one need not give way

    def _tried(self, asked: _QueuedJob) -> wire.WorkerReply:
        reply = self._begin(asked) if self._socket is None else None
        if asked.body is FIRST:
            return reply or wire.WorkerReply()
        reply = self._exchange(asked.body(), asked.limit, asked.account, asked.beside)
        if reply.status == wire.AGAIN and asked.again is not None:
            reply = self._exchange(asked.again(), asked.limit, asked.account)
        return self._checked(reply)

    def _begin(self, asked: _QueuedJob) -> wire.WorkerReply | None:
        """A new process, with its first job done."""
        try:
            vocabulary = None if self._first is None else self._first[2]()
            pid, connection, number = self._launcher.fork(self._memory, vocabulary)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise ModelError(
                f"no process can be started to read {self._what} ({error}): free memory or raise the process limit"
            ) from error
        with self._lock:
            self._pid, self._socket = pid, connection
            self._slow = False
            # Process ids are given out again: this names the one process for good.
            self._handle = os.pidfd_open(pid)
        if self._first is None:
            return None
        make, limit, _ = self._first
        try:
            return self._checked(self._exchange(make(number), limit, asked.account))
        except (ModelError, OptionsError):
            self._end()
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
                raise OSError("it has ended")
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
        """End the process; returns what has ended it."""
        with self._lock:
            pid, connection = self._pid, self._socket
            if connection is None:
                return 0
            self._kill()
            os.close(self._handle)
            connection.close()
            self._pid, self._handle, self._socket = 0, -1, None
        return self._launcher.reap(pid)
