"""How soon a verifier that ended is started again."""

from __future__ import annotations

import errno
import os
import signal
import sys
import urllib.request
from io import StringIO

import pytest

from cloud_verifier.config import ServerConfig
from cloud_verifier.observing.http import StatusServer
from specnav.fleet.child import FIRST_PAUSE_S, LASTING_S, MOST_PAUSE_S, VerifierChild, next_pause
from tests.helpers.waiting import until

SERVED_BRIEFLY = LASTING_S / 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_that_served_and_was_killed_comes_back_at_once_however_often(number: signal.Signals) -> None:
    """On a slow machine a kill may well come before it has served for long; the pause then must not add up."""
    pause_s = FIRST_PAUSE_S
    for _ in range(10):
        pause_s = next_pause(pause_s, SERVED_BRIEFLY, -number)
    assert pause_s == FIRST_PAUSE_S


@pytest.mark.parametrize(
    ("served_s", "code"),
    [(0.0, 1), (0.0, -signal.SIGKILL), (SERVED_BRIEFLY, 1), (SERVED_BRIEFLY, -signal.SIGSEGV)],
    ids=["does not start", "killed while it loads", "ends by itself", "crashes"],
)
def test_one_that_does_not_last_is_waited_for_longer_and_longer(served_s: float, code: int) -> None:
    pauses = [FIRST_PAUSE_S]
    for _ in range(10):
        pauses.append(next_pause(pauses[-1], served_s, code))
    assert pauses[1] == 2 * FIRST_PAUSE_S and pauses[-1] == MOST_PAUSE_S
    assert next_pause(pauses[-1], LASTING_S + 1, code) == FIRST_PAUSE_S


def test_the_load_of_a_verifier_is_read_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where $http_proxy is set and $no_proxy is not, no replica had work, and a fleet did not grow."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(urllib.request, "_opener", None)
    monkeypatch.setattr(VerifierChild, "_keep_alive", lambda self: None)
    status = StatusServer("127.0.0.1:0", lambda: b"specdec_working 3.0\n", healthy=str, ready=str)
    child = VerifierChild(ServerConfig("x"), lambda: None)
    child.metrics = status.bind
    assert child.working() == 3
    status.close()


@pytest.mark.graph
def test_a_verifier_is_kept_alive_where_its_log_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    code = """print('{"event": "ready", "bind": "tcp://127.0.0.1:1"}', flush=True); import time; time.sleep(60)"""
    monkeypatch.setattr("specnav.fleet.child.command_of", lambda config: ([sys.executable, "-c", code], {}))
    monkeypatch.setattr(sys, "stderr", Full())
    child = VerifierChild(ServerConfig("x"), lambda: None)
    until(lambda: child.address == "tcp://127.0.0.1:1")
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: child.starts == 2 and child.address)
    child.drain()
    until(child.ended.is_set)
