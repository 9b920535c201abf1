"""A parent that has imported what our processes import, and forks them: they are up in a fraction of a second.

For tests of what processes do, not of how they start. A forked process has its own session, environment, log and
signals, runs its module as `python -m` does, and ends as an interpreter ends. Its name (`psutil.Process.name`) is that
of its module. What starts processes of its own (`COMMANDS`) has a parent of this kind below itself.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import IO, NoReturn

from specnav.supervise.processes import ChildSpec, Supervisor, die_with_parent

PRELOADED = (
    "cloud_verifier.__main__",
    "cloud_verifier.net.server",
    "navsim.ros_node",
    "spec_vlm_nav.model.speculative",
    "spec_vlm_nav.ros.nodes.console_node",
    "spec_vlm_nav.ros.nodes.mission_node",
    "spec_vlm_nav.ros.nodes.motion_node",
    "spec_vlm_nav.ros.nodes.vlm_nav_node",
    "specdec.edge.decoder",
    "specdec.link.emulator",
    "specdec.models.direct",
    "specnav.bench.runner.edge",
    "specnav.bench.runner.run",
    "specnav.cli.app",
    "specnav.demo.run",
    "torch",
)
COMMANDS = ("specnav.cli", "tests.demo.small_demo")
"""Modules that start processes."""
WITHOUT_ROS = ("cloud_verifier", "specdec.link.emulator")
"""Modules of which nothing is left behind where their objects are not taken apart, as the shared memory of nodes is."""
READ_AT_THE_START = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH")}
"""What the interpreter and torch read of the environment only once: a process that wants others can't be forked."""
MESSAGE_BYTES = 1 << 20


class ForkedProcess:
    """What subprocess.Popen is, for a process that is another one's child."""

    def __init__(self, args: Sequence[str], pid: int, ended: int) -> None:
        """ended: a descriptor from which the exit code can be read once there is one."""
        self.args, self.pid = args, pid
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; returns the exit code. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._ended, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            # Nothing to read: the parent has gone, and the child with it.
            self.returncode = int(os.read(self._ended, 16) or -signal.SIGTERM)
            os.close(self._ended)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkingParent:
    """The parent, seen by those who ask it: it ends when they hang up."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        # Room for an environment and a long command line.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)

    def start(
        self, spec: ChildSpec, log: IO[bytes], errors: IO[bytes] | None = None
    ) -> ForkedProcess | None:
        """Start `python -m module …` with its output in a log; None for what can't be forked.

        errors: where stderr goes; None: into the log.
        """
        if list(spec.argv[:2]) != [sys.executable, "-m"]:
            return None
        environment = {**os.environ, **spec.environment}
        if any(environment.get(name) != value for name, value in READ_AT_THE_START.items()):
            return None
        request = {"argv": spec.argv[2:], "environment": environment, "cwd": str(spec.cwd or os.getcwd())}
        ended, tells = os.pipe()
        try:
            descriptors = [log.fileno(), (errors or log).fileno(), tells]
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            pid = int(self._socket.recv(16))
        finally:
            os.close(tells)
        return ForkedProcess(spec.argv, pid, ended)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def connected() -> tuple[socket.socket, socket.socket]:
    """The two ends of a connection: of those who ask, and of the parent."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def serve(connection: socket.socket) -> list[str] | None:
    """Fork what is asked for until no caller asks any more: None. In a child: what to run."""
    selector, here = selectors.DefaultSelector(), os.getpid()
    selector.register(connection, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is not connection:
                selector.unregister(key.fd)
                pid, tells = key.data
                os.write(tells, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
                os.close(tells)
                os.close(key.fd)
                continue
            message, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 3)
            if not message:
                return None
            request = json.loads(message)
            *logs, tells = descriptors
            pid = os.fork()
            if not pid:
                # What reports others' ends must not stay open here.
                open_ones = [one.data[1] for one in selector.get_map().values() if one.data] + [tells]
                selector.close()
                connection.close()
                for descriptor in open_ones:
                    os.close(descriptor)
                prepare(request, logs, here)
                return list(request["argv"])
            for log in logs:
                os.close(log)
            connection.send(str(pid).encode())
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, tells))


def prepare(request: dict, logs: Sequence[int], parent: int) -> None:
    """Make a forked process one that looks freshly started. logs: where stdout and stderr go."""
    os.setsid()
    die_with_parent(parent)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for stream, log in enumerate(logs, 1):
        os.dup2(log, stream)
    for descriptor in (nothing, *logs):
        os.close(descriptor)
    for text in (sys.stdout, sys.stderr):
        text.reconfigure(write_through=True, line_buffering=True)
    take_name(request["argv"][0].removesuffix(".__main__").rpartition(".")[2])


def take_name(name: str) -> None:
    """Be called so in lists of processes; the kernel keeps 15 characters."""
    Path("/proc/self/comm").write_text(name[:15])


def run(argv: Sequence[str]) -> None:
    """Run `python -m argv…`; ends with SystemExit or an exception, as that does."""
    module, *arguments = argv
    package = hasattr(sys.modules.get(module), "__path__")
    sys.modules.pop(f"{module}.__main__" if package else module, None)  # Or runpy warns that it has been imported
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


@cache
def forking_parent() -> ForkingParent:
    """The one parent of this process's tests, until they end."""
    ours, theirs = connected()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.graph.forking", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
    parent = ForkingParent(ours)
    atexit.register(process.wait, 30)  # last registered, first called: after hanging up
    atexit.register(parent.close)
    return parent


@contextlib.contextmanager
def forked_children(parent: ForkingParent | None = None) -> Iterator[None]:
    """What a Supervisor starts meanwhile is forked, where it can be. parent: by default the one of these tests."""
    afresh, forks = Supervisor.launch, parent or forking_parent()
    Supervisor.launch = staticmethod(
        lambda spec, log, errors=None: forks.start(spec, log, errors) or afresh(spec, log, errors)
    )
    try:
        yield
    finally:
        Supervisor.launch = staticmethod(afresh)


def parent_below() -> ForkingParent:
    """A parent that is forked from this process, which has no threads yet; it ends with it."""
    ours, theirs = connected()
    here = os.getpid()
    if not os.fork():
        ours.close()
        die_with_parent(here)
        take_name("forking_parent")
        serve_and_run(theirs)
        os._exit(0)
    theirs.close()
    return ForkingParent(ours)


def serve_and_run(connection: socket.socket) -> None:
    """Fork what is asked for until no caller asks any more; in a child: run it to its end."""
    # Ctrl-C is for those who ask: they end this process by hanging up.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = serve(connection)
    signal.signal(signal.SIGINT, before)
    if child is None:
        return
    try:
        with forked_children(parent_below()) if child[0] in COMMANDS else contextlib.nullcontext():
            run(child)
    except SystemExit as ended:
        if child[0] in WITHOUT_ROS and isinstance(ended.code, int):
            end(ended.code)
        raise
    sys.exit()


def end(code: int) -> NoReturn:
    """End as an interpreter does, but take no modules apart: with torch's that takes a quarter of a second."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Import, and serve."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()  # Nothing that is imported is garbage.
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # Else each child goes through all of it at its end, for half a second.
    gc.enable()
    serve_and_run(connection)
    os._exit(0)  # taking apart torch's modules takes seconds


if __name__ == "__main__":
    main()
