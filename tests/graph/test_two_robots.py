"""Two robots in namespaces and one verifier: each hears its own instruction only, and answers as if it were alone."""

from __future__ import annotations

import array
import threading
import time

import pytest
from geometry_msgs.msg import Twist
from sensor_msgs.msg import CompressedImage
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand
from std_msgs.msg import Empty, String

from specnav.bags.source import open_bag
from specnav.record.types import own_types
from tests.graph.bases import FakeBase
from tests.graph.harness import ROOT, Graph, ros_args, wait_until
from tests.graph.stack import free_port, speed

pytestmark = pytest.mark.graph

ROOMS = ROOT / "tests" / "data" / "rooms.mcap"
CAMERA_KIND, METRICS_KIND = "sensor_msgs/msg/CompressedImage", "spec_vlm_nav_interfaces/msg/DecisionMetrics"
# What every node of a machine shares; all other names must be in a robot's namespace.
SHARED = {"/diagnostics", "/clock", "/tf", "/tf_static", "/rosout", "/parameter_events"}
NAMES = ("one", "two")
DECISIONS = 4


class Camera:
    """Shows a robot one picture for ever, 10 Hz; a number behind its end makes each message another one."""

    def __init__(self, graph, name, picture):
        self._publisher = graph.probe.node.create_publisher(CompressedImage, f"/{name}/camera", 1)
        self._picture = picture
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        number = 0
        while not self._end.wait(0.1):
            number += 1
            data = array.array("B", self._picture + number.to_bytes(4, "big"))
            message = CompressedImage(format="jpeg", data=data)
            message.header.stamp.sec, message.header.stamp.nanosec = int(time.time()), number
            self._publisher.publish(message)

    def close(self):
        self._end.set()
        self._thread.join(2)


def two_scenes():
    """Two recorded frames with different actions that are not stop: (picture, what the target alone said of it)."""
    bag, types = open_bag(ROOMS), own_types()
    types.learn(bag.topic("/vlm_nav_node/metrics"))
    pictures = {}
    for message in bag.messages(["/camera/image_raw/compressed"]):
        shown = types.decode(CAMERA_KIND, message.data)
        pictures[(shown.header.stamp.sec, shown.header.stamp.nanosec)] = bytes(shown.data)
    said = [types.decode(METRICS_KIND, m.data) for m in bag.messages(["/vlm_nav_node/metrics"])]
    first = next(m for m in said if "turn" in m.model_action)
    second = next(
        m for m in said if "forward" in m.model_action and m.instruction_text != first.instruction_text
    )
    return [(pictures[(m.frame_stamp.sec, m.frame_stamp.nanosec)], m) for m in (first, second)]


@pytest.fixture(scope="module")
def robots(pair, tmp_path_factory):
    """(graph, what each is to say by name), everything up, nobody instructed."""
    if not pair.trained:
        pytest.skip("needs the trained default models")
    with Graph(tmp_path_factory.mktemp("robots")) as graph:
        address = f"tcp://127.0.0.1:{free_port()}"
        verifier = graph.start(
            "cloud_verifier", "cloud_verifier", "--bind", address, "--model", str(pair.target)
        )
        scenes = dict(zip(NAMES, two_scenes(), strict=True))
        nodes, props = [], []
        for name, (picture, _) in scenes.items():
            graph.probe.listen(DecisionMetrics, f"/{name}/vlm_nav_node/metrics")
            graph.probe.listen(MotionCommand, f"/{name}/motion_command")
            graph.probe.listen(Twist, f"/{name}/cmd_vel")
            props += [FakeBase(graph, namespace=f"/{name}/"), Camera(graph, name, picture)]
            place = ["-r", f"__ns:=/{name}"]
            mover = ros_args(max_angular=2.0, max_linear=1.5)
            decider = ros_args(
                {"image": "camera"}, verifier=address, draft_model=str(pair.draft), exploration="none",
                image_width=224, image_height=140,
            )  # fmt: skip
            nodes.append(graph.start("motion_node", "spec_vlm_nav.ros.nodes.motion_node", *mover, *place))
            nodes.append(graph.start("vlm_nav_node", "spec_vlm_nav.ros.nodes.vlm_nav_node", *decider, *place))
        for process in (verifier, *nodes):
            process.wait_for("ready", 120)
        for name in NAMES:  # what is said before they have found each other, nothing hears
            said = graph.probe.open(String, f"/{name}/instruction", True)
            wait_until(lambda said=said: said.get_subscription_count() > 0, 30, f"{name} listening")
        yield graph, {name: answer for name, (_, answer) in scenes.items()}
        for prop in props:
            prop.close()


def instruct(graph, name, text):
    return graph.probe.say(f"/{name}/instruction", String(data=text))


def decisions(graph, name, since=0.0):
    return [
        h.message
        for h in graph.probe.heard(f"/{name}/vlm_nav_node/metrics", since)
        if not h.message.error_code
    ]


def logs(graph):
    return "\n".join(process.text[-1500:] for process in graph.processes)


def moved(graph, name, since):
    return any(speed(h) > 0 for h in graph.probe.heard(f"/{name}/cmd_vel", since))


def test_two_robots_share_a_verifier_and_nothing_else(robots):
    graph, answers = robots
    began = instruct(graph, "one", answers["one"].instruction_text)
    wait_until(lambda: len(decisions(graph, "one")) >= 2, 30, "decisions of robot one")
    # Its odometry may be found a moment after its first decisions: no motion is carried out until then.
    wait_until(lambda: moved(graph, "one", began), 30, "a motion of robot one")
    assert not moved(graph, "two", began)
    assert graph.probe.heard("/two/vlm_nav_node/metrics") == []

    both = instruct(graph, "two", answers["two"].instruction_text)
    for name in NAMES:
        wait_until(
            lambda name=name: len(decisions(graph, name, both)) >= DECISIONS,
            60,
            f"decisions of robot {name}",
            lambda: logs(graph),
        )
    for name, alone in answers.items():
        for decided in decisions(graph, name):
            assert list(decided.token_ids) == list(alone.token_ids), (name, decided.text, alone.text)
            assert decided.instruction_text == alone.instruction_text
    sessions = {
        name: {h.message.session for h in graph.probe.heard(f"/{name}/motion_command")} for name in NAMES
    }
    assert len(sessions["one"]) == len(sessions["two"]) == 1 and sessions["one"] != sessions["two"]

    graph.probe.say("/one/vlm_nav_node/cancel", Empty())
    time.sleep(1.0)
    since = time.monotonic()
    wait_until(lambda: len(decisions(graph, "two", since)) >= 2, 30, "robot two goes on")
    assert not moved(graph, "one", since) and decisions(graph, "one", since) == []
    assert moved(graph, "two", since)


def test_every_name_is_in_a_robots_namespace(robots):
    graph, _ = robots
    node = graph.probe.node
    topics = {name for name, _ in node.get_topic_names_and_types()}
    services = {name for name, _ in node.get_service_names_and_types()}
    ours = {name for name in topics | services if not name.startswith("/probe/")}
    assert {name for name in ours if not name.startswith(("/one/", "/two/"))} <= SHARED
    one, two = ({n[4:] for n in ours if n.startswith(f"/{robot}/")} for robot in NAMES)
    assert one == two and {"/motion_command", "/cmd_vel", "/vlm_nav_node/metrics"} <= one
