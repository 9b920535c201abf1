"""A cloud verifier as a child process on loopback, for commands that need one only for themselves."""

from __future__ import annotations

import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from cloud_verifier.config import ServerConfig
from specnav.errors import UsageError
from specnav.supervise.children import LOOPBACK, READY, endpoint_of, verifier_spec
from specnav.supervise.processes import die_with_parent

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 10.0


@contextmanager
def verifier_process(server: ServerConfig) -> Iterator[Callable[[], str]]:
    """Start `python -m cloud_verifier` on a free port, stop it at the end. Yields what waits until it serves and gives
    its endpoint: there is something else to do meanwhile.

    Waiting raises UsageError, with the child's own last message when it ends before it is ready.
    """
    server = replace(server, bind=f"{LOOPBACK}:0")
    child = subprocess.Popen(
        verifier_spec(server, {}).argv, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    )
    lines: deque[str] = deque(maxlen=50)
    endpoint: list[str] = []
    settled = threading.Event()

    def drain() -> None:
        # Read to the end: a full pipe would block the verifier.
        assert child.stderr is not None
        for line in child.stderr:
            lines.append(line.strip())
            if not endpoint and READY.search(line):
                endpoint.append(endpoint_of(line))
                settled.set()
        settled.set()

    reader = threading.Thread(target=drain, name="verifier-stderr", daemon=True)
    reader.start()

    def wait() -> str:
        if not settled.wait(START_TIMEOUT_S):
            raise UsageError(f"the verifier was not ready within {START_TIMEOUT_S:.0f} s (model {server.model})")
        if not endpoint:
            last = next((line for line in reversed(lines) if line), "no message")
            raise UsageError(f"the verifier did not start: {last}")
        return endpoint[0]

    try:
        yield wait
    finally:
        child.terminate()
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        reader.join(timeout=1.0)
