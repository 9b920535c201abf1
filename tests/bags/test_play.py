"""What `specnav play` plays and when: nothing that moves a robot unless it is named, and never another type's bytes."""

import pytest

from specnav.bags.source import Bag
from specnav.bags.storage import BagTopic
from specnav.errors import UsageError
from specnav.play.choice import check_definition, choose, may_move, parse_remaps
from specnav.play.pace import PlaybackPace

KINDS = {
    "/camera/image_raw/compressed": "sensor_msgs/msg/CompressedImage",
    "/odom": "nav_msgs/msg/Odometry",
    "/scan": "sensor_msgs/msg/LaserScan",
    "/robot1/instruction": "std_msgs/msg/String",
    "/vlm_nav_node/reasoning": "std_msgs/msg/String",
    "/cmd_vel": "geometry_msgs/msg/Twist",
    "/motion_command": "spec_vlm_nav_interfaces/msg/MotionCommand",
    "/joy": "sensor_msgs/msg/Joy",
    "/api/sport/request": "unitree_api/msg/Request",
    "/clock": "rosgraph_msgs/msg/Clock",
    "/empty": "nav_msgs/msg/Odometry",
}


@pytest.fixture
def bag(tmp_path):
    return Bag(
        tmp_path, [BagTopic(name, kind, 0 if name == "/empty" else 3) for name, kind in KINDS.items()], []
    )


def names(played):
    return [one.name for one in played]


def test_what_a_robots_nodes_hear_is_played_and_nothing_that_moves_it(bag):
    expected = ["/camera/image_raw/compressed", "/odom", "/scan", "/robot1/instruction"]
    assert names(choose(bag, [], {}, True)) == expected


def test_an_instruction_and_commands_may_move_a_robot(bag):
    commands = ["/robot1/instruction", "/cmd_vel", "/motion_command", "/joy", "/api/sport/request"]
    assert [topic.name for topic in bag.topics if may_move(topic)] == commands


def test_named_topics_are_played_with_or_without_the_slash_and_under_another_name(bag):
    remaps = parse_remaps(["/odom:=robot2/odom"])
    assert names(choose(bag, ["odom", "/cmd_vel"], remaps, False)) == ["/robot2/odom", "/cmd_vel"]


def test_a_recorded_clock_does_not_tick_beside_our_own(bag):
    assert names(choose(bag, ["/clock", "/odom"], {}, False)) == ["/odom", "/clock"]
    assert names(choose(bag, ["/clock", "/odom"], {}, True)) == ["/odom"]


@pytest.mark.parametrize("remap", ["/odom", ":=/x", "/odom:=", "/:=/x"])
def test_a_remap_that_is_none_is_refused(remap):
    with pytest.raises(UsageError, match="write it as"):
        parse_remaps([remap])


def test_topics_that_are_not_there_are_named_with_those_that_are(bag):
    with pytest.raises(UsageError, match="has no topic /nope; topics: /camera"):
        choose(bag, ["/nope"], {}, False)
    with pytest.raises(UsageError, match="has no topic /gone"):
        choose(bag, [], {"/gone": "/x"}, False)
    with pytest.raises(UsageError, match="holds no camera"):
        choose(Bag(bag.path, [BagTopic("/cmd_vel", KINDS["/cmd_vel"], 3)], []), [], {}, False)
    with pytest.raises(UsageError, match="has nothing to play on /clock; topics"):
        choose(bag, ["/clock"], {}, True)
    with pytest.raises(UsageError, match="has nothing to play on odom; topics"):
        choose(Bag(bag.path, [BagTopic("/odom", KINDS["/odom"], 0)], []), ["odom"], {}, False)


DEFINITION = (
    "# a comment\nfloat64   distance_m # metres\nuint8 STOP=0\nbool unverified\n"
    + "=" * 80
    + "\nMSG: x/Y\nint8 a\n"
)


@pytest.mark.parametrize(
    ("installed", "fits"),
    [
        ("float64 distance_m\n\nbool unverified", True),
        ("float64 distance_m\nuint8 MOVE=1\nbool unverified", True),
        ("float64 distance_m", False),
        ("bool unverified\nfloat64 distance_m", False),
        (None, True),
    ],
)
def test_a_type_that_was_another_one_when_it_was_recorded_is_refused(installed, fits):
    topic = BagTopic("/motion_command", "our/msg/Kind", 1, DEFINITION, "ros2msg")
    if fits:
        check_definition(topic, lambda kind: installed)
    else:
        with pytest.raises(UsageError, match="our/msg/Kind had another definition when it was recorded"):
            check_definition(topic, lambda kind: installed)


@pytest.mark.parametrize(
    ("recorded", "installed", "fits"),
    [
        ("our/Part[] parts\nstd_msgs/Header header", "Part[] parts # each\nHeader header", True),
        ("our/Part[] parts", "std_msgs/Header[] parts", False),
        ("our/Part[] parts", "Part[3] parts", False),
        ("float64 w", "float64 w 1", True),
        ("?? no field", "?? no field", True),
        ("?? no field", "?? none", False),
    ],
)
def test_a_definition_may_be_written_in_another_way_than_the_installed_one(recorded, installed, fits):
    topic = BagTopic("/x", "our/msg/Kind", 1, recorded, "ros2msg")
    if fits:
        check_definition(topic, lambda kind: installed)
    else:
        with pytest.raises(UsageError, match="had another definition"):
            check_definition(topic, lambda kind: installed)


def test_the_bags_time_runs_at_the_rate_and_never_waits_for_a_message_from_before_the_first():
    pace = PlaybackPace(first_ns=10**9, began=100.0, rate=2.0)
    assert pace.due(10**9) == pace.due(5) == 100.0
    assert pace.due(3 * 10**9) == pytest.approx(101.0)
    assert pace.bag_time_ns(101.0) == 3 * 10**9
    assert pace.bag_time_ns(99.0) == 10**9
