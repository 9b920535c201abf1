"""The console without a browser: who may come in, who has control, what is asked for and what is told."""

import asyncio
import json
import os
import stat

import pytest

from spec_vlm_nav.common.errors import ConsoleError, ParameterError
from spec_vlm_nav.console.access import (
    Bucket,
    Role,
    add_token,
    check_binding,
    check_origin,
    find_token,
    make_token,
    read_tokens,
)
from spec_vlm_nav.console.audit import Audit
from spec_vlm_nav.console.control import Control
from spec_vlm_nav.console.decisions import time_shares
from spec_vlm_nav.console.live import LIVE, checked
from spec_vlm_nav.console.pages import Pages
from spec_vlm_nav.model.origins import Origin, origins_of
from specdec.edge.stats import RoundStats

pytest.importorskip("starlette")

# -- who may come in


def test_a_token_is_kept_as_its_hash_in_a_file_of_the_owners(tmp_path):
    file = tmp_path / "tokens.json"
    clear, token = make_token("anna", Role.OPERATOR)
    add_token(file, token)
    assert clear not in file.read_text() and stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert find_token(read_tokens(file), clear).name == "anna"
    assert find_token(read_tokens(file), clear[:-1]) is None and find_token(read_tokens(file), "") is None
    newer, again = make_token("anna", Role.VIEWER)
    add_token(file, again)
    assert (
        find_token(read_tokens(file), clear) is None
        and find_token(read_tokens(file), newer).role is Role.VIEWER
    )


def test_tokens_that_others_can_read_or_that_are_none_are_refused(tmp_path):
    file = tmp_path / "tokens.json"
    add_token(file, make_token("anna", Role.OPERATOR)[1])
    file.chmod(0o644)
    with pytest.raises(ConsoleError, match="chmod 600"):
        read_tokens(file)
    file.chmod(0o600)
    file.write_text('{"a": 1}')
    with pytest.raises(ConsoleError, match="holds no tokens"):
        read_tokens(file)


def test_beyond_loopback_tokens_and_tls_are_needed():
    tokens = (make_token("anna", Role.OPERATOR)[1],)
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.9"):
        check_binding(host, (), "", False)
    for host in ("0.0.0.0", "192.168.1.4", "robot.local", ""):
        with pytest.raises(ConsoleError, match="no tokens"):
            check_binding(host, (), "cert.pem", False)
        with pytest.raises(ConsoleError, match="without TLS"):
            check_binding(host, tokens, "", False)
        check_binding(host, tokens, "cert.pem", False)


@pytest.mark.parametrize(
    "origin, host, loopback, admitted",
    [
        ("http://127.0.0.1:8765", "127.0.0.1:8765", True, True),
        ("http://localhost:8765", "localhost:8765", True, True),
        ("https://robot:8765", "robot:8765", False, True),
        ("http://evil.example", "127.0.0.1:8765", True, False),
        ("http://127.0.0.1:9999", "127.0.0.1:8765", True, False),
        ("http://rebound.example:8765", "rebound.example:8765", True, False),
        ("null", "127.0.0.1:8765", True, False),
        (None, "127.0.0.1:8765", True, False),
        ("http://127.0.0.1:8765", None, True, False),
        ("file://127.0.0.1:8765", "127.0.0.1:8765", True, False),
    ],
)
def test_only_the_consoles_own_page_may_open_the_socket(origin, host, loopback, admitted):
    assert (check_origin(origin, host, loopback) == "") is admitted


def test_a_bucket_lets_through_so_many():
    bucket = Bucket(2.0, 3.0)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.take(0.5) and not bucket.take(0.5)


# -- who has control


def test_control_is_taken_not_shared_and_lost_by_silence():
    control = Control(0.6)
    assert control.take(1, "anna", 0.0, False) == ""
    assert "anna has control" in control.take(2, "ben", 0.1, False) and control.page == 1
    assert control.take(2, "ben", 0.2, True) == "" and control.page == 2
    control.beat(1, 5.0)
    assert control.lost(0.7) == "" and control.lost(0.9) == "ben" and control.page is None
    assert control.lost(1.0) == "", "said once"


# -- what is asked for


class FakeRobot:
    def __init__(self):
        self.done, self.standing, self.simulated = [], True, False
        self.watched, self.new = None, ()

    def __getattr__(self, name):
        return lambda *given: self.done.append((name, *given[:2]))

    def poll(self, watched):
        self.watched, new, self.new = watched, self.new, ()
        return new

    def frame(self):
        return (len(self.done) + 1, 0.0, b"jpeg")

    def state(self):
        return {"state": "STOPPED", "standing": self.standing, "simulator": self.simulated}

    def map(self):
        return {"path": [], "places": [], "fence_m": 0.0}

    def decisions(self):
        return []

    def parameters(self):
        return []


class World:
    """Pages over fake robots, in a loop that is not running: `take` needs none."""

    def __init__(self, tmp_path, require_operator=False, names=("",)):
        self.robots = {name: FakeRobot() for name in names}
        self.file = tmp_path / "audit.jsonl"
        self.pages = Pages(self, Audit(self.file, print), require_operator, 0.6)

    def names(self):
        return sorted(self.robots)

    def all_names(self):
        return sorted(self.robots)

    def get(self, name):
        return self.robots.get(name)

    def health(self):
        return []

    def open(self, name="anna", role=Role.OPERATOR):
        async def made():
            return self.pages.open(name, role, "127.0.0.1", None)

        return asyncio.run(made())

    def done(self, name=""):
        return [what for what in self.robots[name].done if what[0] not in ("ask_parameters", "hold")]

    def told(self, page, kind):
        found = []
        while not page.outbox.empty():
            message = page.outbox.get_nowait()
            if isinstance(message, str) and (said := json.loads(message))["t"] == kind:
                found.append(said)
        return found

    def audit(self):
        return [json.loads(line) for line in self.file.read_text().splitlines()]


def test_without_control_nothing_moves_and_with_it_does(tmp_path):
    world = World(tmp_path)
    anna = world.open()
    world.pages.take(anna, {"t": "say", "text": "find the box"})
    assert world.done() == [] and "take it first" in world.told(anna, "no")[0]["why"]
    world.pages.take(anna, {"t": "take"})
    world.pages.take(anna, {"t": "say", "text": "find the box"})
    assert world.done() == [("instruct", "find the box")]


@pytest.mark.parametrize(
    "message",
    [
        {"t": "take", "force": True},
        {"t": "say", "text": "find the box"},
        {"t": "mission", "text": "go to a"},
        {"t": "order", "order": "resume"},
        {"t": "reset"},
        {"t": "cancel"},
        {"t": "fault", "name": "base stuck"},
        {"t": "room", "seed": 1},
        {"t": "param", "node": "motion_node", "name": "max_linear", "value": 0.2},
    ],
)
def test_a_viewer_looks_and_nothing_else(tmp_path, message):
    world = World(tmp_path)
    viewer = world.open("vera", Role.VIEWER)
    world.pages.take(viewer, message)
    assert world.done() == [] and "viewers look" in world.told(viewer, "no")[0]["why"]
    assert world.audit()[-1]["outcome"].startswith("refused") and world.audit()[-1]["role"] == "viewer"


def test_anybody_who_looks_may_stop_however_many_commands_came_before(tmp_path):
    world = World(tmp_path)
    viewer = world.open("vera", Role.VIEWER)
    for _ in range(100):
        world.pages.take(viewer, {"t": "say", "text": "x"})
    world.pages.take(viewer, {"t": "stop", "id": "1"})
    world.pages.take(viewer, {"t": "estop"})
    assert [what[0] for what in world.done()] == ["stop", "estop"]


def test_words_that_mean_stop_stop_at_once_also_while_they_are_still_spoken(tmp_path):
    world = World(tmp_path)
    anna = world.open()
    world.pages.take(anna, {"t": "heard", "text": "stop"})
    world.pages.take(anna, {"t": "heard", "text": "go to the stop sign"})
    world.pages.take(anna, {"t": "take"})
    world.pages.take(anna, {"t": "say", "text": "please stop!"})
    assert [what[0] for what in world.done()] == ["stop", "stop"]


def test_several_instructions_are_shown_before_they_start(tmp_path):
    world = World(tmp_path)
    anna = world.open()
    world.pages.take(anna, {"t": "take"})
    words = "go to the red table, then the blue box"
    world.pages.take(anna, {"t": "say", "text": words})
    assert world.done() == []
    assert world.told(anna, "steps")[0]["steps"] == ["go to the red table", "go to the blue box"]
    world.pages.take(anna, {"t": "say", "text": words, "confirmed": True})
    assert world.done() == [("run_mission", words, world.done()[0][2])]
    world.pages.take(anna, {"t": "say", "text": words, "one": True})
    assert world.done()[-1] == ("instruct", words)


def test_taking_control_from_somebody_stops_the_robot_first(tmp_path):
    world = World(tmp_path)
    anna, ben = world.open("anna"), world.open("ben")
    world.pages.take(anna, {"t": "take"})
    world.pages.take(ben, {"t": "take"})
    assert "anna has control" in world.told(ben, "no")[0]["why"] and world.done() == []
    world.pages.take(ben, {"t": "take", "force": True})
    assert world.done() == [("stop",)] and world.pages.control("").name == "ben"
    world.pages.take(anna, {"t": "say", "text": "find the box"})
    assert world.done() == [("stop",)]


@pytest.mark.parametrize("require, stops", [(True, [("stop",)]), (False, [])])
def test_a_page_that_goes_stops_the_robot_where_an_operator_is_required(tmp_path, require, stops):
    world = World(tmp_path, require)
    anna = world.open()
    world.pages.take(anna, {"t": "take"})
    world.pages.close(anna)
    assert world.done() == stops and world.pages.control("").page is None
    if require:
        assert ("hold", "console of the robot", False) in world.robots[""].done


def test_control_of_one_robot_is_none_of_another(tmp_path):
    world = World(tmp_path, names=("one", "two"))
    anna = world.open()
    world.pages.take(anna, {"t": "take"})
    world.pages.take(anna, {"t": "look", "robot": "two"})
    world.pages.take(anna, {"t": "say", "text": "find the box"})
    assert world.done("one") == world.done("two") == []


def test_a_robot_that_is_not_there_is_told_so_and_the_page_stays_where_it_was(tmp_path):
    world = World(tmp_path, names=("one", "two"))
    anna = world.open()
    world.pages.take(anna, {"t": "take"})
    for name in ("three", "", None, ["two"], "x" * 9000):
        world.pages.take(anna, {"t": "look", "robot": name})
        assert "there is 'one', 'two'" in world.told(anna, "no")[-1]["why"][:200]
    assert anna.robot == "one" and world.pages.control("one").page == anna.number
    world.pages.take(anna, {"t": "look", "robot": "two"})
    assert anna.robot == "two" and world.pages.control("one").page is None
    assert '"look three' in world.file.read_text()


@pytest.mark.parametrize(
    "message, words",
    [
        ({"t": "dance"}, "no command"),
        ({"t": "say", "text": "  "}, "say where to go"),
        ({"t": "mission", "text": "steps:\n- turn_deg: x"}, ":2: turn_deg"),
        ({"t": "order", "order": "move", "step": "x"}, "numbers"),
        ({"t": "order", "order": "move", "step": -1}, "numbers"),
        ({"t": "param", "node": "motion_node", "name": "max_linear", "value": 99}, "0.05 to 1.5"),
        ({"t": "param", "node": "motion_node", "name": "dry_run", "value": True}, "no live parameter"),
        ({"t": "param", "node": "x", "name": "y", "value": 1}, "no live parameter"),
    ],
)
def test_what_cannot_be_done_is_said_and_noted(tmp_path, message, words):
    world = World(tmp_path)
    anna = world.open()
    world.pages.take(anna, {"t": "take"})
    world.pages.take(anna, message)
    assert world.done() == [] and words in world.told(anna, "no")[0]["why"]
    assert words in world.audit()[-1]["outcome"] and world.audit()[-1]["who"] == "anna"


def test_a_picture_is_sent_when_the_one_before_was_drawn(tmp_path):
    world = World(tmp_path)
    anna = world.open()
    for _ in range(5):
        world.robots[""].done.append(("new",))
        world.pages._woken("", "frame")
    pictures = [m for m in list(anna.outbox._queue) if isinstance(m, bytes)]
    assert len(pictures) == 1
    world.pages.take(anna, {"t": "drawn"})
    assert len([m for m in list(anna.outbox._queue) if isinstance(m, bytes)]) == 2


def test_that_it_stands_is_told_when_it_does_and_not_before(tmp_path):
    world = World(tmp_path)
    world.robots[""].standing = False
    anna = world.open()
    world.pages.take(anna, {"t": "stop", "id": "7"})
    world.pages._woken("", "status")
    assert world.told(anna, "stands") == []
    world.robots[""].standing = True
    world.pages._woken("", "status")
    told = world.told(anna, "stands")
    assert told[0]["id"] == "7" and told[0]["ms"] is not None


def test_typed_words_that_mean_stop_stop_without_control_too(tmp_path):
    world = World(tmp_path)
    viewer = world.open("vera", Role.VIEWER)
    world.pages.take(viewer, {"t": "say", "text": "Stop!"})
    assert world.done() == [("stop",)] and world.audit()[-1]["command"] == "stop typed"


def test_a_stop_without_a_socket_reaches_the_robot_it_names(tmp_path):
    world = World(tmp_path, names=("one", "two"))
    assert world.pages.stop_by_post("anna", Role.OPERATOR, "127.0.0.1", "two")
    assert world.done("two") == [("stop",)] and world.done("one") == []
    assert not world.pages.stop_by_post("anna", Role.OPERATOR, "127.0.0.1", "three")
    assert world.audit()[-1]["command"] == "stop by POST"


def test_a_page_that_is_slow_for_a_moment_keeps_control_unless_an_operator_is_required(tmp_path):
    for require, patience in ((False, 5.0), (True, 0.6)):
        world = World(tmp_path, require)
        assert world.pages.control("").silence_s == patience


@pytest.mark.parametrize(
    "message, words",
    [
        ({"t": "fault", "name": "explode"}, "no fault is called"),
        ({"t": "room", "seed": "x"}, "a room is a number"),
        ({"t": "room", "seed": -1}, "a number from 0"),
    ],
)
def test_faults_and_rooms_are_of_the_simulator_and_checked(tmp_path, message, words):
    world = World(tmp_path)
    anna = world.open()
    world.pages.take(anna, {"t": "take"})
    world.pages.take(anna, message)
    assert "not simulated" in world.told(anna, "no")[0]["why"]
    world.robots[""].simulated = True
    world.pages.take(anna, message)
    assert world.done() == [] and words in world.told(anna, "no")[0]["why"]
    world.pages.take(anna, {"t": "fault", "name": "camera stops"})
    (name, fault, _), *others = world.done()
    assert name == "inject" and fault["camera_fault"] == "stopped" and fault["base_fault"] == "none"
    assert others == []


def test_the_faults_are_parameters_of_the_simulator():
    from navsim.ros_parameters import SETTINGS
    from spec_vlm_nav.console.orders import FAULTS

    live = {setting.name: setting for setting in SETTINGS if setting.live}
    for fault in FAULTS.values():
        for name, value in fault.items():
            live[name].check(value)
            assert type(value) is type(live[name].default)


def test_several_robots_are_told_side_by_side_with_who_has_control(tmp_path):
    world = World(tmp_path, names=("one", "two"))
    anna = world.open()
    world.pages.take(anna, {"t": "take"})
    world.pages._regularly("map")
    one, two = world.told(anna, "fleet")[0]["robots"]
    assert (one["name"], one["control"], two["name"], two["control"]) == ("one", "anna", "two", "")
    assert one["state"] == "STOPPED" and one["standing"] is True


# -- what is shown


def round_of(accepted, gained, ready=None):
    return RoundStats(4, accepted, 0, 0, 0.0, 0.0, 0.0, gained, ready)


def test_tokens_tell_how_they_came():
    own, drafted, ahead, bare = (
        o.value for o in (Origin.TARGET, Origin.DRAFTED, Origin.AHEAD, Origin.UNVERIFIED)
    )
    rounds = (round_of(2, 3), round_of(3, 4, ready=2), round_of(0, 1))
    assert origins_of(rounds, 8, 8) == [drafted, drafted, own, ahead, ahead, drafted, own, own]
    assert origins_of(rounds, 7, 7) == [drafted, drafted, own, ahead, ahead, drafted, own], (
        "an end of sequence is no token"
    )
    assert origins_of(rounds[:1], 3, 5) == [drafted, drafted, own, bare, bare]
    assert origins_of((), 2, 2) == [own, own]


def test_a_decisions_time_is_split_without_counting_a_moment_twice():
    spans = [
        ("edge", "prepare frame", 0.0, 10.0),
        ("edge", "prefill", 10.0, 40.0),
        ("uplink", "open", 10.0, 20.0),
        ("cloud", "prefill", 20.0, 60.0),
        ("downlink", "verdict", 60.0, 70.0),
    ]
    assert time_shares(spans) == {"camera": 10.0, "edge": 0.0, "link": 20.0, "cloud": 40.0}
    assert sum(time_shares(spans).values()) == 70.0


def test_live_parameters_are_checked_against_their_tables():
    assert checked("motion_node", "max_linear", 1) == 1.0
    with pytest.raises(ParameterError):
        checked("motion_node", "max_linear", "fast")
    assert set(LIVE) == {"vlm_nav_node", "motion_node"} and "dry_run" not in LIVE["motion_node"]


def test_a_robot_is_watched_only_while_a_page_looks_at_it_and_what_is_read_reaches_the_page(tmp_path):
    world = World(tmp_path, names=("", "second"))
    first, second = world.robots[""], world.robots["second"]

    async def life():
        watch = asyncio.create_task(world.pages.watch())
        await asyncio.sleep(0.12)
        assert (first.watched, second.watched) == (False, False)
        page = world.pages.open("anna", Role.OPERATOR, "127.0.0.1", None)
        first.new = ("frame",)
        await asyncio.sleep(0.12)
        assert (first.watched, second.watched) == (True, False)
        assert page.in_flight, "the picture was sent without anybody's call"
        world.pages.close(page)
        await asyncio.sleep(0.12)
        assert (first.watched, second.watched) == (False, False)
        watch.cancel()

    asyncio.run(life())
