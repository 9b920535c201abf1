"""What a page may send that no page of ours would: nothing moves, nothing dies, a stop is a stop."""

from __future__ import annotations

import json
import math
import random

import pytest

from spec_vlm_nav.common.errors import ConsoleError
from spec_vlm_nav.console.access import AccessRole
from spec_vlm_nav.console.orders import MOVING
from spec_vlm_nav.console.words import page_message, understood
from tests.robot.console_world import World

pytest.importorskip("starlette")

DEEP = "[" * 100_000 + "]" * 100_000
ABSURD = [
    "", "nonsense", "[]", "7", "null", DEEP, '{"t": ' + DEEP + "}", '{"t": "say", "text": ["find the box"]}',
    '{"t": "say", "text": {"a": 1}}', '{"t": "say", "text": "\\ud800"}', '{"t": "say", "text": "a\\u0000b"}',
    '{"t": "param", "node": "motion_node", "name": "max_linear", "value": NaN}',
    '{"t": "param", "node": "motion_node", "name": "max_linear", "value": 1e999}',
    '{"t": "param", "node": "motion_node", "name": "max_linear", "value": ' + "9" * 4000 + "}",
    '{"t": "param", "node": "motion_node", "name": "max_linear", "value": ' + "9" * 9000 + "}",
    json.dumps({"t": "say", **{f"field{n}": n for n in range(100)}}), '{"\\ud800": 1, "t": "say", "text": "find"}',
]  # fmt: skip


@pytest.mark.parametrize("text", ABSURD, ids=lambda text: text[:40])
def test_what_is_no_message_is_not_understood(text):
    assert understood(text) is None


def test_a_stop_is_understood_whatever_else_comes_with_it():
    for odd in ({"id": math.inf}, {"how": ["x"]}, {"how": "\ud800"}, {f"f{n}": n for n in range(99)}):
        assert understood(json.dumps({"t": "stop", **odd})) == {"t": "stop"}
    assert understood('{"t": "estop", "id": "e"}') == {"t": "estop", "id": "e"}


def test_what_is_no_number_reaches_the_page_as_null():
    told = page_message("state", {"rtt_ms": math.nan, "pose": (1.0, math.inf), "of": [{"left": -math.inf}], "n": 3})
    assert json.loads(told) == {"t": "state", "rtt_ms": None, "pose": [1.0, None], "of": [{"left": None}], "n": 3}


ODD = ["", "x" * 20_000, "\u202e\u0301" * 500, "stop it not", "🤖", "a\nb"]
VALUES = [None, True, -1, 0, 2**53, -(2**53), 0.5, 1e308, *ODD]
FIELDS = ["text", "robot", "id", "how", "name", "order", "steps", "step", "place", "seed", "node", "value", "one"]


def test_anything_in_any_field_moves_nothing_and_breaks_nothing(tmp_path):
    """Fields of every kind in every command: by a viewer nothing is carried out, whatever they hold."""
    world, dice = World(tmp_path), random.Random(18)
    viewer = world.open(role=AccessRole.VIEWER)
    operator = world.open()
    kinds = [*MOVING, "take", "release", "look", "heard", "file", "files", "beat", "drawn", "nothing", "", "hello"]
    for _ in range(400):
        message = {"t": dice.choice([*kinds, *VALUES])}
        message |= {name: dice.choice(VALUES) for name in dice.sample(FIELDS, dice.randint(0, 6))}
        viewer.bucket._left = operator.bucket._left = 99.0
        said = understood(json.dumps(message))
        if said is not None:
            world.pages.take(viewer, said)
        viewer.outbox = operator.outbox = type(viewer.outbox)(200)
    assert {what[0] for what in world.done()} <= {"stop", "estop"}
    assert all(len(line) < 3000 for line in world.file.read_text().splitlines())


def test_an_operators_absurd_values_are_refused_in_words_a_page_can_show(tmp_path):
    world = World(tmp_path)
    anna = world.open()
    world.pages.take(anna, {"t": "take"})
    world.robots[""].simulated = True
    for message in (
        {"t": "param", "node": "motion_node", "name": "max_linear", "value": 2**53},
        {"t": "param", "node": "motion_node", "name": "max_linear", "value": "x" * 250_000},
        {"t": "param", "node": "motion_node", "name": "max_linear", "value": None},
        {"t": "param", "node": "no", "name": "max_linear", "value": 1},
        {"t": "order", "order": "move", "step": 1e308, "place": 0},
        {"t": "order", "order": "move", "step": "many", "place": 0},
        {"t": "room", "seed": 1e300},
        {"t": "room", "seed": -1},
        {"t": "fault", "name": "x" * 250_000},
        {"t": "mission", "text": "x: [" * 20_000},
        {"t": "mission", "text": "&a [*a]"},
        {"t": "mission", "text": "[" * 5_000},
        {"t": "say", "text": "   "},
        {"t": "x" * 250_000},
    ):
        anna.bucket._left = 99.0
        world.pages.take(anna, message)
        refused = world.told(anna, "no")
        assert refused and 0 < len(refused[0]["why"]) <= 1000, str(message)[:80]
    assert [what[0] for what in world.done()] == []


@pytest.mark.slow
def test_a_flood_of_nonsense_over_the_socket_leaves_the_console_and_stop_alive(tmp_path):
    from websockets.sync.client import connect

    from tests.robot.console_served import Served

    with Served(tmp_path) as world:
        address, origin = world.web.url.replace("http", "ws") + "socket", world.origin
        with world.page() as socket:
            for text in (*ABSURD, b"\x00\xff bytes"):
                socket.send(text)
            socket.send('{"t": "stop", "id": 1e999, "how": ["x"]}')
            assert world.stopped(10)[:2] == ["", "stop"]
        assert world.done() == []
        for hello in (b"bytes", DEEP, '{"name": "\\ud800"}', '{"token": [1]}'):
            with connect(address, origin=origin) as socket:
                socket.send(hello)
                with pytest.raises(Exception, match="4401"):
                    socket.recv(5)
        with connect(address, origin=origin) as socket:
            socket.send('{"name": "ben"}')
            assert json.loads(socket.recv(5))["name"] == "ben"


@pytest.mark.slow
def test_a_robot_that_says_absurd_things_does_not_end_the_watch_over_control(tmp_path):
    import asyncio

    world = World(tmp_path, require_operator=True)

    async def life():
        page = world.pages.open("anna", AccessRole.OPERATOR, "127.0.0.1", None)
        watch = asyncio.create_task(world.pages.watch())
        world.pages.take(page, {"t": "take"})
        world.robots[""].state = lambda: 1 / 0
        await asyncio.sleep(1.2)  # no sign of life for longer than the page's 0.6 s
        assert not watch.done() and world.pages.control("").page is None
        watch.cancel()

    asyncio.run(life())
    assert ("stop",) in world.done(), "the lost page stops the robot all the same"


@pytest.mark.slow
def test_a_certificate_that_cannot_be_used_is_refused_in_one_line(tmp_path):
    from tests.helpers.certificates import certificate
    from tests.robot.console_served import Served

    cert, key = certificate(tmp_path, "one")
    _, other = certificate(tmp_path, "two")
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    for given in ((cert, other), (junk, key), (cert, junk), (tmp_path / "none.pem", key), (cert, "")):
        with pytest.raises(ConsoleError) as refused:
            Served(tmp_path, certificate=str(given[0]), key=str(given[1]))
        (tmp_path / "stops").unlink()
        assert "cannot be used: " in str(refused.value) and "\n" not in str(refused.value)
    with Served(tmp_path, certificate=str(cert), key=str(key)) as served:
        assert served.web.url.startswith("https://")
