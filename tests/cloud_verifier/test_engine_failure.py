"""An engine that cannot go on ends its verifier, with one line and an exit code, and keeps no client waiting."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from cloud_verifier import logs, serving
from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.interface import Capabilities, EngineEnvironment
from cloud_verifier.errors import VerifierError
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from cloud_verifier.observing.counts import EngineLoad
from specdec.link.wire import Opened
from tests.cloud_verifier.engine_cloud import Cloud
from tests.helpers.servers import Pair
from tests.helpers.waiting import Clock

WHY = "its workers are gone: start the verifier again"


class Failing:
    """An engine that serves for a moment; None: until it is stopped, and fails then."""

    can = Capabilities()
    idle = True

    def __init__(self, environment: EngineEnvironment, serves_s: float | None) -> None:
        self.load = EngineLoad(time.perf_counter())
        self._environment = environment
        self._serves_s = serves_s
        self._stopped = threading.Event()

    def run(self) -> None:
        self._stopped.wait(self._serves_s)
        self._environment.fail(WHY)
        self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()


def server_of(pair: Pair, log: EventLog, serves_s: float | None) -> Server:
    def make(environment: EngineEnvironment) -> Any:
        return Failing(environment, serves_s)

    return Server(ServerConfig("m", bind="tcp://127.0.0.1:0"), pair.target, log, make_engine=make)


@pytest.mark.slow
def test_a_verifier_whose_engine_fails_ends_with_its_reason(text_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = SimpleNamespace(SIGTERM=15, SIGINT=2, SIGHUP=1, SIG_IGN=1, getsignal=lambda _: 1, signal=lambda *_: None)
    monkeypatch.setattr(serving, "signal", handlers)
    monkeypatch.setattr(serving, "settle_memory", lambda: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    # One that would watch over signals, and end this process after one.
    launcher = SimpleNamespace(end_in_time=lambda _: None, warm_up=lambda _: None)
    monkeypatch.setattr(serving, "Launcher", lambda: launcher)
    monkeypatch.setattr(
        serving, "_own_server", lambda config, log, tracing, launcher: (server_of(text_pair, log, 0.05), lambda: 0)
    )
    log = StringIO()
    with pytest.raises(VerifierError, match=WHY):
        serving.serve(ServerConfig("m"), log)
    assert log.getvalue().count(WHY) == 1 and '"stopped"' in log.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("end", [Server.stop, Server.drain])
def test_what_fails_because_the_verifier_ends_is_no_failure(text_pair: Pair, end: Callable[[Server], None]) -> None:
    log = StringIO()
    server = server_of(text_pair, EventLog(log), None)
    end(server)
    server.run()
    assert not server.failed and WHY not in log.getvalue()


def test_a_call_that_fails_loses_no_task_that_came_with_it(text_pair: Pair) -> None:
    cloud = Cloud(text_pair.target)
    cloud.submit_open(1, [40, 50])

    def fails() -> None:
        raise RuntimeError("as a driver might")

    cloud.engine._arriving.put(fails)
    cloud.work()
    assert isinstance(cloud.last(1), Opened) and cloud.out == [1]


def test_warnings_go_on_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now, wall = StringIO(), Clock(100.0), Clock(1e9)
    monkeypatch.setattr(logs, "time", SimpleNamespace(time=wall, monotonic=now))
    log = EventLog(stream)
    for _ in range(2):
        for _ in range(logs.WARNINGS_A_MINUTE):
            log.warning("busy")
        now.now, wall.now = now.now + 60.0, wall.now - 86_400.0
    assert stream.getvalue().count("busy") == 2 * logs.WARNINGS_A_MINUTE
