"""Connections that come to the console: STOP first, the others by turns of their addresses, silent ones last."""

import asyncio
import socket
import time
from contextlib import ExitStack, contextmanager

import pytest

from spec_vlm_nav.console import connection_queue
from spec_vlm_nav.console.connection_queue import ConnectionQueue
from tests.robot.console_served import Served

ASK, STOP = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"POST /stop HTTP/1.1\r\nhost: a\r\n\r\n"


@contextmanager
def opened(most=8, silent_s=5.0, secured=False):
    """A queue without a rate to speak of: the words that its connections begin with, in order; how one comes."""
    served = []
    with ExitStack() as kept, socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)

        def serve(one):
            served.append(kept.enter_context(one).recv(100))

        def come(said=b"", where="127.0.0.1"):
            one = kept.enter_context(socket.socket())
            one.bind((where, 0))
            one.connect(listening.getsockname())
            one.sendall(said)
            return one

        queue = ConnectionQueue(listening, serve, most, silent_s, secured, 1000)
        yield served, come
        queue.close()


def run(test):
    asyncio.run(test())


async def turn():
    for _ in range(50):
        await asyncio.sleep(0.001)


def is_closed(one):
    one.settimeout(0.2)
    try:
        return one.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_stop_overtakes_all_that_wait(monkeypatch):
    monkeypatch.setattr(connection_queue, "SERVED_A_S", 0.5)  # one at once, and the next in two seconds

    async def test():
        with opened() as (served, come):
            for _ in range(5):
                come(ASK)
            await turn()
            come(STOP)
            await turn()
            assert served.count(ASK) < 4 and served[-1] == STOP

    run(test)


@pytest.mark.slow
def test_closed_while_connections_wait_nothing_is_left_to_do(monkeypatch):
    monkeypatch.setattr(connection_queue, "SERVED_A_S", 4.0)  # eight at once, and the next in a quarter of a second

    async def test():
        wrong = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
        with opened(most=20) as (_, come):
            for _ in range(12):
                come(ASK)
            await turn()
        await asyncio.sleep(0.3)
        assert wrong == []

    run(test)


@pytest.mark.slow
def test_a_stop_whose_headers_come_slowly_waits_like_others_and_is_served():
    async def test():
        with opened() as (served, come):
            one = come(STOP[:20])
            await turn()
            assert served == [STOP[:20]] and not is_closed(one)

    run(test)


@pytest.mark.slow
def test_addresses_take_turns_and_a_crowd_leaves_room_for_another_address(monkeypatch):
    monkeypatch.setattr(connection_queue, "SERVED_A_S", 40.0)

    async def test():
        with opened(most=8) as (served, come):
            crowd = [come(b"crowd") for _ in range(120)]  # 80 at once, then 40 a second, 8 wait
            await turn()
            come(b"other", "127.0.0.2")
            await asyncio.sleep(0.15)
            assert b"other" in served
            assert any(is_closed(one) for one in crowd[-10:])

    run(test)


@pytest.mark.slow
def test_silent_connections_make_room_and_are_closed_in_the_end():
    async def test():
        with opened(most=3, silent_s=0.2) as (served, come):
            silent = [come() for _ in range(5)]
            await turn()
            late = come(ASK)
            await turn()
            assert served == [ASK] and not is_closed(late)
            await asyncio.sleep(0.3)
            assert all(is_closed(one) for one in silent)

    run(test)


@pytest.mark.slow
def test_with_tls_what_begins_no_handshake_is_closed():
    async def test():
        with opened(secured=True) as (served, come):
            plain, shakes = come(STOP), come(b"\x16\x03\x01")
            await turn()
            assert served == [b"\x16\x03\x01"] and is_closed(plain) and not is_closed(shakes)

    run(test)


@pytest.mark.slow
@pytest.mark.realtime
def test_a_flood_of_connections_does_not_hold_up_a_stop_by_post(tmp_path):
    with Served(tmp_path) as served, ExitStack() as kept:
        for _ in range(400):
            one = kept.enter_context(socket.create_connection(("127.0.0.1", served.port), 5))
            one.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        times = []
        for _ in range(10):
            at = time.monotonic()
            assert served.post_stop()[0] == 200
            times.append(served.stopped()[2] - at)
        assert sorted(times)[5] < 0.1 and max(times) < 0.5
