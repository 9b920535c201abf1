"""The console without a browser: what is asked for and what is told."""

import asyncio

import pytest

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.console.access import AccessRole
from spec_vlm_nav.console.parameters import LIVE, checked
from tests.robot.console_world import FakeRobot, World

pytest.importorskip("starlette")


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
    viewer = world.open("vera", AccessRole.VIEWER)
    world.pages.take(viewer, message)
    assert world.done() == [] and "viewers look" in world.told(viewer, "no")[0]["why"]
    assert world.audit()[-1]["outcome"].startswith("refused") and world.audit()[-1]["role"] == "viewer"


def test_anybody_who_looks_may_stop_however_many_commands_came_before(tmp_path):
    world = World(tmp_path)
    viewer = world.open("vera", AccessRole.VIEWER)
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


def test_a_page_that_comes_back_shows_its_robot_again_and_stops_no_other(tmp_path):
    world = World(tmp_path, names=("one", "two"))
    anna, absent = world.open(robot="two"), world.open(robot="three")
    for page in (anna, absent):
        world.pages.take(page, {"t": "stop", "id": "1"})
    assert anna.robot == "two" and world.done("two") == [("stop",)] and world.done("one") == []
    assert world.told(absent, "no")[-1]["why"] == "there is no such robot"
    world.robots["three"] = FakeRobot()  # the console finds it later
    world.pages.take(absent, {"t": "take"})
    assert world.pages.control("three").page == absent.number


def test_a_page_opened_before_a_robot_is_found_shows_the_first_one(tmp_path):
    world, looked = World(tmp_path), []
    world.robots[""].is_heard = False  # the console's own namespace holds no robot
    page = world.open()
    page.on_look = lambda: looked.append(page.robot)
    world.pages._regularly("state")
    assert page.robot == "" and not looked
    world.robots = {"one": FakeRobot(), "two": FakeRobot()}
    world.pages._regularly("state")
    world.robots["a"] = FakeRobot()
    world.pages._regularly("state")
    assert looked == ["one"] and world.told(page, "state")[-1]["robot"] == "one"


def test_a_robot_that_is_not_there_is_told_so_and_the_page_stays_where_it_was(tmp_path):
    world = World(tmp_path, names=("one", "two"))
    anna = world.open()
    world.pages.take(anna, {"t": "take"})
    for name in ("three", "", None, ["two"], "x" * 9000):
        world.pages.take(anna, {"t": "look", "robot": name})
        assert "known: 'one', 'two'" in world.told(anna, "no")[-1]["why"][:200]
    assert anna.robot == "one" and world.pages.control("one").page == anna.number
    world.pages.take(anna, {"t": "look", "robot": "two"})
    assert anna.robot == "two" and world.pages.control("one").page is None
    assert '"look three' in world.file.read_text()


@pytest.mark.parametrize(
    "message, words",
    [
        ({"t": "dance"}, "not a command"),
        ({"t": "say", "text": "  "}, "say where to go"),
        ({"t": "mission", "text": "steps:\n- turn_deg: x"}, ":2: turn_deg"),
        ({"t": "order", "order": "move", "step": "x"}, "must be integers"),
        ({"t": "order", "order": "move", "step": -1}, "must be integers"),
        ({"t": "param", "node": "motion_node", "name": "max_linear", "value": 99}, "0.05 to 1.5"),
        ({"t": "param", "node": "motion_node", "name": "dry_run", "value": True}, "not a live parameter"),
        ({"t": "param", "node": "x", "name": "y", "value": 1}, "not a live parameter"),
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
    viewer = world.open("vera", AccessRole.VIEWER)
    world.pages.take(viewer, {"t": "say", "text": "Stop!"})
    assert world.done() == [("stop",)] and world.audit()[-1]["command"] == "stop typed"


def test_a_stop_without_a_socket_reaches_the_robot_it_names(tmp_path):
    world = World(tmp_path, names=("one", "two"))
    told = {"who": "anna", "role": "operator", "where": "127.0.0.1"}
    world.pages.stopped_by_post({"posted": "two", "heard": False, **told})
    assert world.done("two") == [("stop",)] and world.done("one") == []
    world.pages.stopped_by_post({"posted": "one", "heard": True, **told})  # the front's own was heard
    assert world.done("one") == []
    assert world.audit()[-1]["command"] == "stop by POST"


def test_a_page_that_is_slow_for_a_moment_keeps_control_unless_an_operator_is_required(tmp_path):
    for require, patience in ((False, 5.0), (True, 0.6)):
        world = World(tmp_path, require)
        assert world.pages.control("").silence_s == patience


@pytest.mark.parametrize(
    "message, words",
    [
        ({"t": "fault", "name": "explode"}, "there is no fault"),
        ({"t": "room", "seed": "x"}, "seed must be an integer"),
        ({"t": "room", "seed": -1}, "an integer of at least 0"),
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


def test_live_parameters_are_checked_against_their_tables():
    assert checked("motion_node", "max_linear", 1) == 1.0
    with pytest.raises(ParameterError):
        checked("motion_node", "max_linear", "fast")
    assert set(LIVE) == {"vlm_nav_node", "motion_node"} and "dry_run" not in LIVE["motion_node"]


@pytest.mark.slow
def test_a_robot_is_watched_only_while_a_page_looks_at_it_and_what_is_read_reaches_the_page(tmp_path):
    world = World(tmp_path, names=("", "second"))
    first, second = world.robots[""], world.robots["second"]

    async def life():
        watch = asyncio.create_task(world.pages.watch())
        await asyncio.sleep(0.12)
        assert (first.watched, second.watched) == (False, False)
        page = world.pages.open("anna", AccessRole.OPERATOR, "127.0.0.1", None)
        first.new = ("frame",)
        await asyncio.sleep(0.12)
        assert (first.watched, second.watched) == (True, False)
        assert page.in_flight, "the picture was sent without any client's call"
        world.pages.close(page)
        await asyncio.sleep(0.12)
        assert (first.watched, second.watched) == (False, False)
        watch.cancel()

    asyncio.run(life())
