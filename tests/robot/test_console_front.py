"""STOP goes from the socket to the topic whatever the console behind is doing, and whatever other pages do."""

import json
import logging
import os
import socket
import time
from contextlib import ExitStack

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from spec_vlm_nav.common.errors import ConsoleError
from spec_vlm_nav.console.access import AccessRole, AccessTokens, add_token, make_token
from spec_vlm_nav.console.aside import read_aside
from spec_vlm_nav.console.audit import Audit
from tests.robot.console_served import Served

SOON_S = 0.5  # a console that is held up for longer does not hold up STOP


def stop(page, **more):
    """Send STOP; returns when."""
    at = time.monotonic()
    page.send(json.dumps({"t": "stop", **more}))
    return at


def raw(served, data=b""):
    one = socket.create_connection(("127.0.0.1", served.port), 5)
    one.sendall(data)
    return one


def ends(one, seconds=3.0):
    """What is said before the other side closes; AssertionError where it does not."""
    one.settimeout(seconds)
    said = b""
    try:
        while data := one.recv(1 << 16):
            said += data
    except ConnectionError:
        pass
    return said


def tokens_of(tmp_path, *names):
    """A file with tokens ROLE:NAME, and these in the clear."""
    file, clear = tmp_path / "tokens.json", {}
    for each in names:
        role, _, name = each.partition(":")
        clear[name], token = make_token(name, AccessRole(role))
        add_token(file, token)
    return file, clear


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served(
        tmp_path_factory.mktemp("console"), max_pages=64
    ) as one:  # floods that end are read to their end
        yield one


@pytest.mark.slow
@pytest.mark.realtime
def test_stop_does_not_wait_for_a_console_that_is_held_up(served):
    with served.page() as busy, served.page(name="ben") as other:
        served.robots[""].cancel = lambda: time.sleep(1.2)
        busy.send('{"t": "take"}')
        busy.send('{"t": "cancel"}')
        time.sleep(0.2)
        for page, kind in ((other, "stop"), (busy, "estop"), (other, "estop")):
            at = time.monotonic()
            page.send(json.dumps({"t": kind}))
            assert served.stopped()[1] == kind and time.monotonic() - at < SOON_S
        other.send('{"t": "heard", "text": "Ѕтор!"}')
        assert served.stopped()[1] == "stop" and time.monotonic() - at < SOON_S
        at = time.monotonic()
        sent = raw(
            served,
            f"POST /stop HTTP/1.1\r\nhost: 127.0.0.1:{served.port}\r\norigin: {served.origin}\r\n\r\n".encode(),
        )
        assert (
            served.stopped()[:2] == ["", "stop"] and b" 200 " in ends(sent) and time.monotonic() - at < SOON_S
        )


def test_what_the_front_stopped_is_told_noted_and_not_stopped_again(served):
    with served.page(name="anna") as page:
        stop(page, id="7", how="button")
        served.stopped()
        assert served.until(page, "stands")["id"] == "7"
        assert served.done() == [] and served.audit()[-1]["command"] == "stop button"
        assert served.audit()[-1]["from"] == "127.0.0.1"


@pytest.mark.parametrize("pieces", [['{"t": "st', 'op"}'], ["", *'{"t": "stop"}', ""]])
def test_a_stop_in_pieces_is_one(served, pieces):
    with served.page() as page:
        page.send(pieces)
        assert served.stopped()[1] == "stop"


def test_bytes_that_are_no_text_hide_no_stop_and_are_no_line_of_the_log(served, caplog):
    with served.page() as page:
        page.send(b'{"t": "say", "text": "\xff"}', text=True)
        page.send(b'{"t": "stop", "how": "\xff"}', text=True)
        assert served.stopped()[1] == "stop"
    assert caplog.text == ""


@pytest.mark.realtime
def test_a_stop_with_anything_beside_it_and_behind_any_flood_is_one(served):
    with served.page() as page:
        stop(page, much="x" * 100_000)
        assert served.stopped()[1] == "stop"
        for _ in range(1500):
            page.send('{"t": "drawn"}')
        at = stop(page)
        assert served.stopped()[1] == "stop" and time.monotonic() - at < 2.0


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.parametrize(
    "flood",
    [
        '{"t": "drawn"}',
        json.dumps({"t": "mission", "text": "x" * 200_000}),
        json.dumps({"t": "say", "text": "ﷺѕтs 停 " * 300}),
    ],
)
def test_pages_that_flood_do_not_hold_up_anothers_stop(served, flood):
    with served.page(name="anna") as page, ExitStack() as kept:
        floods = [kept.enter_context(served.page(name="flood")) for _ in range(8)]
        for one in (flood.socket for flood in floods):
            one.setblocking(False)
            frame = client_frame(flood.encode())
            try:
                while one.send(frame * max(1, 200_000 // len(frame))):
                    pass
            except BlockingIOError:
                pass
        times = []
        for _ in range(30):
            at = stop(page)
            times.append(served.stopped()[2] - at)
            time.sleep(0.01)
        for one in floods:
            one.socket.close()
        assert sorted(times)[15] < 0.05 and max(times) < SOON_S


def client_frame(payload):
    from websockets.frames import Frame, Opcode

    return Frame(Opcode.TEXT, payload).serialize(mask=True)


@pytest.mark.slow
def test_while_a_page_changes_robots_its_stop_is_for_both_or_the_one_it_looks_at(tmp_path):
    with Served(tmp_path, names=("one", "two")) as served, served.page() as page:
        served.robots["one"].ask_parameters = served.robots["two"].ask_parameters = lambda: time.sleep(0.6)
        page.send('{"t": "look", "robot": "two"}')
        stop(page)
        assert sorted(served.stopped()[0] for _ in range(2)) == ["one", "two"]
        time.sleep(1.5)
        stop(page)
        assert served.stopped()[0] == "two"
        page.send('{"t": "look", "robot": "three"}')
        stop(page)
        assert served.stopped()[0] == "two"


@pytest.mark.slow
def test_a_stop_without_a_socket_wants_our_origin_a_robot_and_a_token(tmp_path):
    file, clear = tokens_of(tmp_path, "viewer:vera")
    with Served(tmp_path, names=("one",), tokens=str(file)) as served:
        assert served.post_stop("one", **{"x-token": clear["vera"]})[0] == 200
        assert served.stopped()[:2] == ["one", "stop"]
        for status, robot, more in (
            (401, "one", {}),
            (401, "one", {"x-token": "snc_no"}),
            (404, "two", {"x-token": clear["vera"]}),
            (403, "one", {"x-token": clear["vera"], "origin": "http://evil.example"}),
            (403, "one", {"x-token": clear["vera"], "origin": ""}),
        ):
            assert served.post_stop(robot, **more)[0] == status
        with pytest.raises(TimeoutError):
            served.stopped(0.2)


@pytest.mark.slow
def test_requests_that_never_end_are_left_and_silent_ones_make_room(tmp_path):
    with Served(tmp_path, head_s=0.4) as served, served.page() as page:
        for start in (b"", b"G", b"GET / HTTP/1.1\r\nhost: a\r\n"):
            with raw(served, start) as one:
                ends(one)
        with raw(served) as endless:
            sent = 0
            with pytest.raises(ConnectionError):
                endless.sendall(b"GET / HTTP/1.1\r\n")
                while sent < 20_000_000:
                    endless.sendall(b"x: " + b"y" * 60_000 + b"\r\n")
                    sent += 60_000
        for method in (b"PUT / ", b"POST /healthz ", b"DELETE / ", b"NONSENSE"):
            with raw(served, method + b"HTTP/1.1\r\nhost: a\r\n\r\n") as one:
                assert b"HTTP/1.1 40" in ends(one)
        stop(page)
        assert served.stopped()[1] == "stop"


@pytest.mark.slow
def test_three_hundred_silent_connections_lock_nobody_out(tmp_path):
    with Served(tmp_path, head_s=30.0) as served, served.page() as page, ExitStack() as silent:
        for _ in range(300):
            silent.enter_context(raw(served))
        assert served.post_stop()[0] == 200
        stop(page)
        assert [served.stopped()[1] for _ in range(2)] == ["stop", "stop"]
        with served.page(name="ben") as late:
            stop(late)
            assert served.stopped()[1] == "stop"


@pytest.mark.slow
def test_viewers_leave_places_to_operators_and_make_room_for_them(tmp_path):
    file, clear = tokens_of(tmp_path, "viewer:vera", "operator:anna")
    with Served(tmp_path, tokens=str(file), max_pages=4) as served, ExitStack() as open_pages:
        viewers = [open_pages.enter_context(served.page(token=clear["vera"])) for _ in range(3)]
        with pytest.raises(ConnectionClosed) as full, served.page(token=clear["vera"]):
            pass
        assert full.value.rcvd.code == 4429
        for _ in range(2):
            open_pages.enter_context(served.page(token=clear["anna"]))
        with pytest.raises(ConnectionClosed) as full:
            served.until(viewers[-1], "never")
        assert "operator" in full.value.rcvd.reason
        stop(viewers[0])
        assert served.stopped()[1] == "stop"


@pytest.mark.slow
def test_a_token_that_is_taken_away_is_worth_nothing_at_once(tmp_path):
    file, clear = tokens_of(tmp_path, "operator:anna", "viewer:vera")
    with Served(tmp_path, tokens=str(file)) as served:
        with served.page(token=clear["anna"]) as anna, served.page(token=clear["vera"]) as vera:
            rows = json.loads(file.read_text())
            file.write_text(json.dumps([row for row in rows if row["name"] == "vera"]))
            with pytest.raises(ConnectionClosed) as gone:
                served.until(anna, "never")
            assert gone.value.rcvd.code == 4401
            served.until(vera, "state")
        with pytest.raises(ConnectionClosed), served.page(token=clear["anna"]):
            pass
        assert served.post_stop(**{"x-token": clear["anna"]})[0] == 401
        file.unlink()
        until = time.monotonic() + 5
        while not served.said and time.monotonic() < until:
            time.sleep(0.05)
        assert "all connections are refused" in served.said[0]
        for hello in ({"token": clear["vera"]}, {"name": "x"}):
            with pytest.raises(ConnectionClosed), served.page(**hello):
                pass


def test_a_file_of_tokens_that_is_not_there_lets_nobody_in(tmp_path):
    with pytest.raises(ConsoleError, match="must exist"):
        AccessTokens(str(tmp_path / "none.json"), tmp_path / "default.json")
    assert AccessTokens("", tmp_path / "default.json").known is None
    assert AccessTokens("none", tmp_path / "default.json").known is None
    file, _ = tokens_of(tmp_path, "operator:anna")
    tokens = AccessTokens(str(file), tmp_path / "default.json")
    file.write_text("[]")
    assert tokens.look() == "" and tokens.known == ()
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(ConsoleError, match="regular file"):
        AccessTokens(str(tmp_path / "fifo"), tmp_path / "default.json")


def test_a_file_of_tokens_that_is_being_written_is_read_again_before_anybody_is_shut_out(tmp_path):
    file, _ = tokens_of(tmp_path, "operator:anna")
    tokens, good = AccessTokens(str(file), file), file.read_text()
    file.write_text(good[:20])
    assert tokens.look() is None and tokens.known
    file.write_text(good)
    assert tokens.look() is None and tokens.known
    file.write_text("{}")
    assert tokens.look() is None and tokens.known
    assert "refused" in tokens.look() and tokens.known == ()
    file.write_text(good)
    assert tokens.look() == "" and tokens.known


@pytest.mark.parametrize("hello", [b"", b'{"name": ', b'{"name": "x"}'])
def test_sockets_that_leave_early_are_no_error(served, hello, caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            ask = f"GET /socket HTTP/1.1\r\nhost: 127.0.0.1:{served.port}\r\norigin: {served.origin}\r\n"
            ask += "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
            ask += "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            with raw(served, ask.encode() + (client_frame(hello) if hello else b"")):
                time.sleep(0.02)
        with connect(served.web.url.replace("http", "ws") + "socket", origin=served.origin):
            pass
        with served.page() as page:
            stop(page)
            served.stopped()
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.slow
def test_a_front_that_ends_ends_the_console(tmp_path):
    with Served(tmp_path) as served:
        served.web._front.kill()
        until = time.monotonic() + 5
        while served.web.failure is None and time.monotonic() < until:
            time.sleep(0.02)
        assert "restart the console" in str(served.web.failure)


def test_the_page_comes_through_the_front_whole(served):
    from spec_vlm_nav.console.web import PAGE

    for name in ("", *(file.name for file in PAGE.iterdir())):
        with raw(
            served, f"GET /{name} HTTP/1.1\r\nhost: a\r\nx-front-client: 6.6.6.6\r\n\r\n".encode()
        ) as one:
            head, _, body = ends(one).partition(b"\r\n\r\n")
            assert (
                b" 200 " in head
                and body == (PAGE / (name or "index.html")).read_bytes()
                and b"content-security-policy" in head.lower()
            )


@pytest.mark.slow
def test_a_mission_is_read_in_a_process_of_its_own(tmp_path):
    import asyncio

    async def read(text):
        told = asyncio.get_running_loop().create_future()
        read_aside(text, lambda *found: told.set_result(found))
        return await asyncio.wait_for(told, 20)

    assert asyncio.run(read("go to a, then go to b")) == (2, "")
    steps, wrong = asyncio.run(read("[" * 5000))
    assert steps == 0 and "nested more than" in wrong


@pytest.mark.slow
def test_the_audit_is_bounded_and_a_flood_of_refusals_writes_little(tmp_path):
    audit = Audit(tmp_path / "audit", print, largest_mb=0.01)
    for i in range(200):
        audit.note("anna" * 100, "operator", "here", "", f"{i} " + "x" * 9999, "done")
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit", "audit.1", "audit.2", "audit.3"]
    assert all(file.stat().st_size <= 10_000 for file in files)
    assert json.loads(files[0].read_text().splitlines()[-1])["command"].startswith("199 ")
    assert files[0].stat().st_mode & 0o077 == 0
    said = []
    os.mkfifo(tmp_path / "fifo")
    Audit(tmp_path / "fifo", said.append).note("a", "b", "c", "d", "e", "f")
    assert "cannot be logged" in said[0]
