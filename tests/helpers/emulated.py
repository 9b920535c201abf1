"""The link emulator as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def emulated(address: str, *settings: str) -> Iterator[str]:
    """The proxy as its own process in front of `address`."""
    command = [
        sys.executable,
        "-m",
        "specdec.link.emulator",
        "--listen",
        "tcp://127.0.0.1:0",
        "--connect",
        address,
    ]
    process = subprocess.Popen([*command, *settings], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        ready = json.loads(process.stderr.readline())
        assert ready["event"] == "ready"
        yield ready["bind"]
    finally:
        process.terminate()
        assert process.wait(5) == 0
        assert process.stderr.read() == ""
