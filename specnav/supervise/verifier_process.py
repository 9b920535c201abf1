# SPDX-License-Identifier: Apache-2.0
"""Runs a cloud verifier as a child process on loopback, for commands that need one for themselves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cloud_verifier.config import ServerConfig
from specnav.errors import ChildFailed, UsageError
from specnav.supervise.children import LOOPBACK, endpoint_of, verifier_spec
from specnav.supervise.processes import Supervisor, last_words

START_TIMEOUT_S = 300.0


@contextmanager
def verifier_process(server: ServerConfig) -> Iterator[Callable[[], str]]:
    """Start `python -m cloud_verifier` on a free port, and stop it at the end.

    The verifier starts in the background, so that the caller can do other work meanwhile.

    Args:
        server: The verifier's settings; its address is replaced.

    Yields:
        A function that waits until the verifier serves and returns its endpoint. It raises UsageError if the verifier
        is not ready in time or ends first; the message then contains the verifier's last line.
    """
    server = replace(server, bind=f"{LOOPBACK}:0")
    # The caller's paths are relative to the caller's working directory.
    spec = replace(verifier_spec(server, {}), cwd=None)
    with tempfile.TemporaryDirectory(prefix="specnav-verifier-") as logs, Supervisor(Path(logs)) as supervisor:
        child = supervisor.start(spec)

        def wait() -> str:
            try:
                return endpoint_of(supervisor.wait_ready(child, START_TIMEOUT_S))
            except ChildFailed as error:
                if child.process.poll() is None:
                    raise UsageError(
                        f"the verifier was not ready within {START_TIMEOUT_S:.0f} s (model {server.model})"
                    ) from error
                said = last_words(child.log) or "no message"
                raise UsageError(f"the verifier did not start: {said}") from error

        yield wait
