"""The man in the middle: what it cuts, holds, delays, repeats, spoils and re-addresses, over real sockets."""

from __future__ import annotations

import time

import pytest
import zmq

from specdec.errors import ProtocolError
from specdec.link.wire import (
    DraftUp,
    Hello,
    Open,
    Opened,
    Pong,
    Sampling,
    VerdictDown,
    Welcome,
    decode_down,
    encode,
)
from specnav.supervise import meddling
from specnav.supervise.faulty_link import FaultyLink
from specnav.supervise.points import DecisionPoint, Watcher

VERDICT = VerdictDown(7, 1, 2, 5, 100, 10)
OPEN = Open(7, False, Sampling(8, 0.0, 0, 0, 1.0, 0.0), [1, 2])


class Ends:
    """A verifier's socket, the link, and an edge's socket."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.verifier = self._socket(zmq.ROUTER)
        port = self.verifier.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"tcp://127.0.0.1:{port}"
        self.link = FaultyLink(self.address)
        self.link.__enter__()
        self.edge = self._socket(zmq.DEALER)
        self.edge.connect(self.link.address)

    def _socket(self, kind):
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 3000)
        return socket

    def up(self, message=None):
        """Send up and receive there; returns the peer and the bytes."""
        self.edge.send(encode(message or Hello(3, "x")))
        return self.verifier.recv_multipart()

    def down(self, peer, *messages):
        for message in messages:
            self.verifier.send_multipart([peer, encode(message)])

    def heard(self, socket, within_s):
        return bool(socket.poll(within_s * 1e3))

    def close(self):
        self.link.__exit__()
        self.edge.close()
        self.verifier.close()
        self.context.term()


@pytest.fixture
def ends():
    made = Ends()
    yield made
    made.close()


def test_it_passes_everything_both_ways(ends):
    peer, data = ends.up()
    assert data == encode(Hello(3, "x"))
    ends.down(peer, Welcome(3, "m"))
    assert decode_down(ends.edge.recv()) == Welcome(3, "m")


@pytest.mark.slow
def test_a_cut_holds_both_directions_and_delivers_in_order_afterwards(ends):
    peer, _ = ends.up()
    ends.link.shut()
    ends.down(peer, VERDICT, Pong(7, 1, 1))
    ends.edge.send(encode(Hello(3, "late")))
    assert not ends.heard(ends.edge, 0.2) and not ends.heard(ends.verifier, 0.2)
    ends.link.open()
    assert [decode_down(ends.edge.recv()) for _ in range(2)] == [VERDICT, Pong(7, 1, 1)]
    assert ends.verifier.recv_multipart()[1] == encode(Hello(3, "late"))


@pytest.mark.slow
@pytest.mark.parametrize("point", list(DecisionPoint))
def test_it_cuts_at_the_point_of_a_decision_that_was_asked_for(ends, point):
    peer, _ = ends.up()
    reached = ends.link.shut_at(point)
    passed = []
    for number in (1, 2):
        if number == 1:
            ends.edge.send(encode(OPEN))
            if not ends.heard(ends.verifier, 0.2):
                break
            passed.append(ends.verifier.recv_multipart()[1])
            ends.down(peer, Opened(7, 5, 8, 100, 10))
            ends.edge.recv()
        ends.edge.send(encode(DraftUp(7, number, number, [5])))
        if not ends.heard(ends.verifier, 0.2):
            break
        passed.append(ends.verifier.recv_multipart()[1])
        ends.down(peer, VERDICT)
        ends.edge.recv()
    assert reached.wait(1)
    assert (
        len(passed)
        == {DecisionPoint.PREFILL: 0, DecisionPoint.MID_ROUND: 2, DecisionPoint.BETWEEN_ROUNDS: 3}[point]
    )
    ends.down(peer, VERDICT)
    assert not ends.heard(ends.edge, 0.2)
    ends.link.open()
    assert decode_down(ends.edge.recv()) == VERDICT


@pytest.mark.slow
@pytest.mark.realtime
def test_messages_come_late_or_twice_or_for_somebody_else_while_that_is_asked_for(ends):
    peer, _ = ends.up()
    ends.link.meddle(meddling.late(0.4))
    began = time.monotonic()
    ends.down(peer, VERDICT)
    assert decode_down(ends.edge.recv()) == VERDICT and 0.4 <= time.monotonic() - began < 1.0
    ends.link.meddle(meddling.twice)
    ends.down(peer, VERDICT)
    assert [decode_down(ends.edge.recv()) for _ in range(2)] == [VERDICT, VERDICT]
    ends.link.meddle(meddling.foreign)
    ends.down(peer, VERDICT, Welcome(3, "m"))
    assert decode_down(ends.edge.recv()).session == meddling.OTHER_SESSION
    assert decode_down(ends.edge.recv()) == Welcome(3, "m")
    ends.link.meddle()
    ends.down(peer, VERDICT)
    assert decode_down(ends.edge.recv()) == VERDICT


def test_garbage_is_nothing_that_the_edge_takes_for_the_message():
    meddle = meddling.garbage(0)
    for _ in range(200):
        ((delay, data),) = meddle(encode(VERDICT))
        assert delay == 0
        try:
            assert decode_down(data) != VERDICT
        except ProtocolError:
            continue


@pytest.mark.slow
def test_a_verifier_that_goes_takes_the_edges_connection_with_it_and_a_new_one_is_found(ends):
    peer, _ = ends.up()
    monitor = ends.edge.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    ends.verifier.close()
    assert monitor.poll(3000)
    ends.edge.disable_monitor()
    monitor.close()
    ends.verifier = ends._socket(zmq.ROUTER)
    deadline = time.monotonic() + 3
    while True:
        try:
            ends.verifier.bind(ends.address)
            break
        except zmq.ZMQError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    peer, data = ends.up()
    assert data == encode(Hello(3, "x"))
    ends.down(peer, VERDICT)
    assert decode_down(ends.edge.recv()) == VERDICT


@pytest.mark.slow
def test_an_edge_that_goes_is_forgotten_and_others_are_served(ends):
    peer, _ = ends.up()
    ends.edge.close()
    ends.edge = ends._socket(zmq.DEALER)
    ends.edge.connect(ends.link.address)
    time.sleep(0.2)
    assert ends.link.connections == 0
    ends.down(peer, VERDICT)
    other, _ = ends.up()
    ends.down(other, VERDICT)
    assert decode_down(ends.edge.recv()) == VERDICT


def test_the_rounds_are_counted_anew_for_each_answer():
    watcher = Watcher()
    draft, verdict = encode(DraftUp(7, 1, 1, [5])), encode(VERDICT)
    for _ in range(2):
        assert watcher.up(encode(OPEN)) is DecisionPoint.PREFILL
        assert [watcher.up(draft) for _ in range(3)] == [None, DecisionPoint.MID_ROUND, None]
        watcher.down(encode(Opened(7, 5, 8, 1, 1)))
        assert [watcher.down(verdict) for _ in range(3)] == [None, DecisionPoint.BETWEEN_ROUNDS, None]
    assert watcher.up(b"nonsense") is None and watcher.down(b"") is None
