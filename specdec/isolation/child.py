# SPDX-License-Identifier: Apache-2.0
"""The launcher and its workers: `python -m specdec.isolation.child FD GUARD DRAIN_S` (see `Launcher`).

Imports only what jobs need: neither torch nor transformers. The launcher sees no untrusted input. It has a single
thread, so that it can fork at any time.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import OrderedDict
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from specdec.errors import ModelError, OptionsError, first_line
from specdec.isolation import wire
from specdec.pictures.decoding import open_picture
from specdec.sampling.choices import choices_along
from specdec.sampling.grammar import FollowedGrammar, Grammar, Grammars

_MOST_FOLLOWED = 64
_DESCRIPTORS = 16
GRACE_S = 3.0
"""Seconds that a process gets after a signal, beyond the drain time of running answers, before it is killed."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TOO_LONG = "it takes more memory than is allowed"


class ParentGuard:
    """Kills the parent process if it does not exit in time after a signal."""

    def __init__(self, signals: int, drain_s: float) -> None:
        """signals: pipe end that delivers the numbers of the parent's signals; -1: none."""
        self._signals = signals
        self._drain_s = drain_s
        self._process = os.getppid()
        self._until_s: float | None = None

    def wait(self, control: socket.socket) -> None:
        """Wait until `control` is readable."""
        while True:
            left_s = None if self._until_s is None else max(0.0, self._until_s - time.monotonic())
            watched: list[Any] = [control] if self._signals < 0 else [control, self._signals]
            ready = select.select(watched, [], [], left_s)[0]
            if (
                self._until_s is not None
                and time.monotonic() >= self._until_s
                and os.getppid() == self._process
            ):
                os.kill(self._process, signal.SIGKILL)
                return
            if self._signals in ready:
                self._hear(os.read(self._signals, 64))
            if control in ready:
                return

    def close(self) -> None:
        """Close the pipe; a worker guards nothing."""
        if self._signals >= 0:
            os.close(self._signals)

    def _hear(self, numbers: bytes) -> None:
        if not numbers:
            self._signals = -1
        for number in numbers:
            if number in _ENDING:
                first = self._until_s is None and number == signal.SIGTERM
                until_s = time.monotonic() + GRACE_S + (self._drain_s if first else 0.0)
                self._until_s = until_s if self._until_s is None else min(self._until_s, until_s)


def launch(control: socket.socket, guard: ParentGuard) -> None:
    """Serve the parent process until it exits. No worker outlives this process."""
    workers: set[int] = set()
    try:
        _serve(control, guard, workers)
    finally:
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in workers:
            _ended(pid)


def _serve(control: socket.socket, guard: ParentGuard, workers: set[int]) -> None:
    for number in _ENDING:  # sent to the whole process group: the parent decides
        signal.signal(number, signal.SIG_IGN)
    Image.preinit()
    Image.init()
    vocabularies: list[Grammars] = []
    decoder = msgspec.msgpack.Decoder(wire.Vocabulary | wire.Fork | wire.Reap)
    while True:
        guard.wait(control)
        data, descriptors, _, _ = socket.recv_fds(control, 4, 1)
        if not data:
            return
        frame = wire.receive(control, head=data)
        if frame is None:
            return
        message = decoder.decode(frame)
        if isinstance(message, wire.Vocabulary):
            reply = _learn(vocabularies, message)
        elif isinstance(message, wire.Reap):
            reply = wire.Launched(_ended(message.pid))
            workers.discard(message.pid)
        else:
            pid = os.fork()
            if not pid:
                control.close()
                guard.close()
                with socket.socket(fileno=descriptors[0]) as jobs:
                    work(jobs, vocabularies, message.memory)
                os._exit(0)
            workers.add(pid)
            for descriptor in descriptors:
                os.close(descriptor)
            reply = wire.Launched(pid)
        wire.send(control, reply)


def _learn(vocabularies: list[Grammars], message: wire.Vocabulary) -> wire.Launched:
    try:
        grammars = Grammars(message.tokenizer, message.vocab_size, set(message.eos_ids))
        grammars.warm_up()
    except ModelError as error:
        return wire.Launched(-1, str(error))
    vocabularies.append(grammars)
    return wire.Launched(len(vocabularies) - 1)


def _ended(pid: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # a child of an earlier launcher
        return 0


def work(jobs: socket.socket, vocabularies: list[Grammars], memory: int) -> None:
    """Run jobs until the socket is closed or a limit ends this process."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NOFILE, _DESCRIPTORS)
    size, shared = _own_size()
    if size:
        _limit(resource.RLIMIT_AS, size + memory)
    decoder = msgspec.msgpack.Decoder(wire.WorkerJob)
    worker = _Worker(vocabularies)
    while (frame := wire.receive(jobs)) is not None:
        job = decoder.decode(frame)
        beside = wire.receive(jobs) if isinstance(job.body, wire.Picture) else None
        began_s = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, job.cpu_s)  # neither signal is handled: it ends this process
        signal.setitimer(signal.ITIMER_REAL, job.wall_s)
        reply = worker.do(job.body, bytes(beside or b""))
        del beside
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        reply.memory = max(0, _own_size()[1] - shared)
        reply.cpu_s = time.process_time() - began_s
        wire.send(jobs, reply)


def _limit(what: int, value: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(what, (value, value))


def _own_size() -> tuple[int, int]:
    """Bytes of address space, and of resident memory; 0 if the system does not report them."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            whole, resident = file.read().split()[:2]
    except OSError:
        return 0, 0
    return int(whole) * resource.getpagesize(), int(resident) * resource.getpagesize()


class _Worker:
    """Runs jobs on one grammar, or on pictures."""

    def __init__(self, vocabularies: list[Grammars]) -> None:
        self._vocabularies = vocabularies
        self._grammar: Grammar | None = None
        self._followed: OrderedDict[int, tuple[list[int], FollowedGrammar]] = OrderedDict()

    def do(self, job: Any, picture: bytes) -> wire.WorkerReply:
        try:
            if isinstance(job, wire.Picture):
                return _decoded(job, picture)
            if isinstance(job, wire.Compile):
                self._grammar = self._vocabularies[job.vocabulary].compile(job.text)
                return wire.WorkerReply(ids=[self._grammar.shortest])
            return self._follow(job)
        except OptionsError as error:
            return wire.WorkerReply(wire.REFUSED, text=str(error))
        except ModelError as error:
            return wire.WorkerReply(wire.UNUSABLE, text=str(error))
        except MemoryError:
            return wire.WorkerReply(wire.UNUSABLE, text=_TOO_LONG)
        except BaseException as error:  # libraries raise anything; Rust panics are no Exception
            return wire.WorkerReply(wire.UNUSABLE, text=f"it cannot be used ({first_line(error)})")

    def _follow(self, job: wire.Masks | wire.Forced | wire.Ways) -> wire.WorkerReply:
        grammar = self._grammar
        assert grammar is not None, "it is compiled first"
        before, followed = self._followed.pop(job.follower, ([], grammar.follow()))
        if len(before) < job.base:
            return wire.WorkerReply(wire.AGAIN)
        answer = [*before[: job.base], *job.ids]
        self._followed[job.follower] = answer, followed
        if len(self._followed) > _MOST_FOLLOWED:
            self._followed.popitem(last=False)
        if isinstance(job, wire.Masks):
            return wire.WorkerReply(
                data=np.packbits(followed.masks(answer, job.tails), axis=1, bitorder="little").tobytes()
            )
        if isinstance(job, wire.Forced):
            return wire.WorkerReply(ids=followed.forced(answer, job.most))
        found = choices_along(followed, answer, job.most)
        return wire.WorkerReply(ids=found.tree.ids, parents=found.tree.parents, sizes=list(found.sizes))


def _decoded(job: wire.Picture, picture: bytes) -> wire.WorkerReply:
    image = open_picture(picture, job.factor, job.least, job.most)
    return wire.WorkerReply(data=image.tobytes(), width=image.width, height=image.height)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        launch(given, ParentGuard(int(sys.argv[2]), float(sys.argv[3])))
