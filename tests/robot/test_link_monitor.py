"""The monitor of the link: what it says, how soon, and that nothing ends it. Real sockets."""

import socket
import threading
import time

import pytest
import zmq

from spec_vlm_nav.common.codes import LinkState
from spec_vlm_nav.model.link_monitor import LinkMonitor
from specdec.link import wire
from tests.robot.links import CuttableProxy, until

pytestmark = [pytest.mark.slow, pytest.mark.realtime]

UP, LOST, UNKNOWN = LinkState.UP, LinkState.LOST, LinkState.UNKNOWN
TIMEOUT_S = 0.4


class Verifier:
    """Welcomes and answers pings `delay_s` late; counts what it was sent. A version other than ours is refused. While
    `welcomes` is cleared, nobody is welcomed.
    """

    def __init__(self, bind="tcp://127.0.0.1:*", delay_s=0.0, version=wire.PROTOCOL_VERSION):
        self.delay_s, self.version, self.pings, self.others = delay_s, version, 0, 0
        self.welcomes = threading.Event()
        self.welcomes.set()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.bind(bind)
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._end.is_set():
            if not self._socket.poll(10):
                continue
            identity, data = self._socket.recv_multipart()
            message = wire.decode_up(data)
            if isinstance(message, wire.Hello):
                self.welcomes.wait(5)
                answer = wire.Welcome(self.version, "fake", 10, b"", [1], 100)
                if self.version != wire.PROTOCOL_VERSION:
                    answer = wire.ErrorDown(
                        0, wire.ERROR_VERSION, "another version: install the same release"
                    )
            elif isinstance(message, wire.Ping):
                self.pings += 1
                time.sleep(self.delay_s)
                answer = wire.Pong(0, 0, 0)
            else:
                self.others += 1
                continue
            self._socket.send_multipart([identity, wire.encode(answer)])

    def close(self):
        self._end.set()
        self._thread.join(5)
        self._context.destroy(linger=0)


@pytest.fixture
def closing():
    things = []
    yield lambda thing: things.append(thing) or thing
    for thing in reversed(things):
        thing.close()


def state_of(monitor):
    return monitor.report().state


def test_unknown_then_up_with_the_round_trip_time(closing):
    verifier = closing(Verifier(delay_s=0.03))
    verifier.welcomes.clear()
    monitor = closing(LinkMonitor(verifier.address, TIMEOUT_S))
    first = monitor.report()
    verifier.welcomes.set()
    assert first.state is UNKNOWN and first.heard_at is None
    assert until(lambda: state_of(monitor) is UP and verifier.pings > 5)
    report = monitor.report()
    assert 30 <= report.rtt_ms < 80 and time.monotonic() - report.heard_at < TIMEOUT_S and report.reason == ""


@pytest.mark.parametrize("fault", ["cut", "silence"])
def test_lost_within_the_time_out_and_up_again_soon_after(closing, fault):
    verifier = closing(Verifier())
    proxy = closing(CuttableProxy(verifier.address))
    changes = []
    monitor = closing(
        LinkMonitor(proxy.address, TIMEOUT_S, on_change=lambda h: changes.append((h, time.monotonic())))
    )
    for round_ in range(2):
        assert until(lambda: state_of(monitor) is UP)
        getattr(proxy, fault)()
        began = time.monotonic()
        assert until(lambda: state_of(monitor) is LOST)
        assert time.monotonic() - began < TIMEOUT_S + 0.1
        time.sleep(0.5)
        assert state_of(monitor) is LOST and monitor.report().reason and monitor.losses == round_ + 1
        proxy.heal()
        healed = time.monotonic()
        assert until(lambda: state_of(monitor) is UP)
        assert time.monotonic() - healed < 2.0
    assert until(lambda: [h for h, _ in changes] == [UP, LOST, UP, LOST, UP])


def test_a_verifier_that_starts_late_or_anew_is_found(closing):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    monitor = closing(LinkMonitor(address, TIMEOUT_S))
    assert until(lambda: state_of(monitor) is LOST, 2)
    for _ in range(2):
        verifier = Verifier(address)
        assert until(lambda: state_of(monitor) is UP)
        verifier.close()
        assert until(lambda: state_of(monitor) is LOST)


def test_an_address_that_cannot_be_used_is_said_and_does_not_spin(closing):
    monitor = closing(LinkMonitor("tcp://nowhere", TIMEOUT_S))
    before = time.process_time()
    assert until(lambda: state_of(monitor) is LOST)
    assert "cannot be used" in monitor.report().reason
    time.sleep(0.5)
    assert time.process_time() - before < 0.3


def test_another_version_is_lost_at_once_with_the_reason_and_survived(closing):
    verifier = Verifier(version=99)
    monitor = closing(LinkMonitor(verifier.address, 30.0))
    assert until(lambda: state_of(monitor) is LOST, 2)
    assert "install the same release" in monitor.report().reason
    verifier.close()
    closing(Verifier(verifier.address))
    assert until(lambda: state_of(monitor) is UP) and monitor.report().reason == ""


def test_a_sign_of_life_from_elsewhere_counts(closing):
    monitor = closing(LinkMonitor("tcp://127.0.0.1:1", TIMEOUT_S))
    assert until(lambda: state_of(monitor) is LOST)
    monitor.heard()
    assert state_of(monitor) is UP
    assert until(lambda: state_of(monitor) is LOST)


def test_a_few_small_messages_a_second_and_nothing_left_behind(closing):
    verifier = closing(Verifier())
    monitor = LinkMonitor(verifier.address, 1.0)
    assert until(lambda: verifier.pings > 0)
    before = verifier.pings
    time.sleep(1.0)
    assert 3 <= verifier.pings - before <= 5 and verifier.others == 0
    began = time.monotonic()
    monitor.close()
    assert time.monotonic() - began < 0.5
    assert not any(t.name == "link monitor" for t in threading.enumerate())
