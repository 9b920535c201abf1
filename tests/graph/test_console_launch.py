"""The console as its launch files start it, and over TLS, in a real Chromium.

`launch` is not to be had by pip: what a launch file asks for is taken from it with stand-ins, and what it asks for is
started for real, with the arguments that `ros2 launch` makes of it.
"""

from __future__ import annotations

import io
import json
import re
import signal
import ssl
import sys
import urllib.error
import urllib.request

import pytest
import yaml
from PIL import Image as Picture
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav_interfaces.msg import MotionStatus
from std_msgs.msg import Empty

from spec_vlm_nav.console.access import AccessRole, add_token, make_token
from specnav.paths import ROOT
from specnav.supervise.processes import ChildSpec
from tests.graph.browser import Browser
from tests.graph.harness import Graph, ros_args, wait_until
from tests.graph.stack import free_port
from tests.helpers.certificates import certificate
from tests.robot.launched import nodes, started, values  # noqa: F401  (started: a fixture)

pytestmark = pytest.mark.graph
NODE = "spec_vlm_nav.ros.nodes.console_node"


@pytest.fixture(scope="module")
def browser():
    with Browser() as running:
        yield running


@pytest.fixture
def graph(tmp_path):
    with Graph(tmp_path) as running:
        yield running


def start(graph, node, context, folder):
    """A launch_ros Node as a process. launch_ros writes its parameters into a file, too."""
    said = node.kwargs
    file = folder / f"{said['name']}.yaml"
    file.write_text(yaml.safe_dump({"/**": {"ros__parameters": values(node, context)}}))
    argv = [sys.executable, "-m", f"spec_vlm_nav.ros.nodes.{said['executable']}", *said["arguments"]]
    argv += ["-r", f"__node:={said['name']}", "--params-file", str(file)]
    argv += [part for pair in said["remappings"] for part in ("-r", f"{pair[0]}:={pair[1]}")]
    if said["namespace"]:
        argv += ["-r", f"__ns:=/{said['namespace']}"]
    return graph.start_child(ChildSpec(said["name"], argv, graph.environment, cwd=ROOT))


def jpeg():
    out = io.BytesIO()
    Picture.new("RGB", (64, 48), (90, 120, 150)).save(out, "JPEG")
    return out.getvalue()


@pytest.mark.parametrize("topic", ["camera/image_raw", "camera/image_raw/compressed"])
def test_console_launch_shows_the_camera_that_it_is_given_or_a_go2s(graph, browser, started, tmp_path, topic):  # noqa: F811
    given = {} if topic == "camera/image_raw" else {"image": topic}
    found, context = started("console.launch.py", port="0", **given)
    node = start(graph, nodes(found)["console_node"], context, tmp_path)
    node.wait_for("ready: ")
    tab = browser.tab(re.findall(r"ready: (\S+)", node.text)[-1])
    tab.wait_text("#link", "no robot heard")
    raw = Image(encoding="rgb8", width=4, height=3, step=12, data=[60] * 36)
    message = CompressedImage(format="jpeg", data=jpeg()) if given else raw

    def drawn():
        graph.probe.say(topic, message)
        return tab.run("Number(document.querySelector('#camera').dataset.frames || 0)") > 0

    wait_until(drawn, 15, "a picture")
    tab.close()


def test_sim_launch_with_console_true_is_a_robot_on_a_page(graph, browser, started, tmp_path, monkeypatch):  # noqa: F811
    asked = {"console": "true", "verifier": f"tcp://127.0.0.1:{free_port()}", "blackbox": "false"}
    found, _ = started("sim.launch.py", **asked)
    (included,) = (a for a in found if type(a).__name__ == "IncludeLaunchDescription")
    for action in found:
        if type(action).__name__ == "ExecuteProcess":
            cmd = [part for part in action.kwargs["cmd"] if part != "__ns:=/"]
            cmd = [part for i, part in enumerate(cmd) if part != "-r" or cmd[i + 1 : i + 2][0].count(":=")]
            graph.start_child(ChildSpec(action.kwargs["name"], cmd, graph.environment, cwd=ROOT))
    robot, context = started("go2.launch.py", **dict(included.kwargs["launch_arguments"]))
    port = free_port()
    running = {}
    for name, node in nodes(robot).items():
        if name == "console_node":
            node.kwargs["parameters"][-1]["port"] = port
        running[name] = start(graph, node, context, tmp_path)
    running["console_node"].wait_for("ready: ", 60)
    tab = browser.tab(f"http://127.0.0.1:{port}/")
    tab.wait_text("#link", "connected", 60)
    tab.wait("Number(document.querySelector('#camera').dataset.frames) > 3", 30)
    tab.wait("!document.querySelector('#sim').hidden")
    tab.click("#take")
    tab.wait_text("#control", "you have control")
    tab.type("#instruction", "turn around, then find the door")
    tab.key("Enter")
    tab.wait_text("#steps ol", "find the door")
    tab.click("#steps-no")
    assert all(one.is_up for one in running.values()), [n for n, one in running.items() if not one.is_up]
    tab.close()


def test_a_page_that_lost_its_console_stops_the_robot_that_it_showed_and_no_other(graph, browser):
    for name in ("one", "two"):
        graph.probe.listen(Empty, f"/{name}/stop")
    said = [graph.probe.node.create_publisher(MotionStatus, f"/{n}/motion_status", 10) for n in ("one", "two")]
    timer = graph.probe.node.create_timer(0.2, lambda: [each.publish(MotionStatus()) for each in said])
    port = free_port()
    node = graph.start("console_node", NODE, *ros_args(port=port))
    node.wait_for("ready: ")
    tab = browser.tab(f"http://127.0.0.1:{port}/")
    tab.wait("document.querySelectorAll('#fleet button').length === 2")
    assert tab.run("document.querySelector('#robot').value") == "one"
    tab.click("#fleet button:nth-child(2)")
    tab.wait("document.querySelector('#robot').value === 'two'")
    node.end(signal.SIGKILL)
    tab.wait("!document.querySelector('#banner').hidden")
    graph.start("console_node", NODE, *ros_args(port=port)).wait_for("ready: ")
    tab.wait("document.querySelector('#banner').hidden")
    tab.wait_text("#link", "connected")
    tab.key(" ")
    wait_until(lambda: graph.probe.heard("/two/stop"), 5, "the stop")
    tab.go(f"http://127.0.0.1:{port}/")  # loaded again, as phones do by themselves
    tab.wait_text("#link", "connected")
    assert tab.run("document.querySelector('#robot').value") == "two"
    assert graph.probe.heard("/one/stop") == []
    graph.probe.node.destroy_timer(timer)
    tab.close()


def test_a_page_over_tls_with_a_token_has_control_and_nobody_comes_in_without(graph, browser, tmp_path):
    cert, key = certificate(tmp_path, "robot")
    clear, token = make_token("anna", AccessRole.OPERATOR)
    tokens = tmp_path / "tokens.json"
    add_token(tokens, token)
    given = {"port": 0, "certificate": str(cert), "key": str(key), "tokens_file": str(tokens)}
    node = graph.start("console_node", NODE, *ros_args({}, host="0.0.0.0", **given))
    node.wait_for("ready: https://")
    port = int(re.findall(r"ready: https://0\.0\.0\.0:(\d+)", node.text)[-1])
    tab = browser.tab(f"https://127.0.0.1:{port}/#token={clear}")
    tab.wait("document.body?.dataset.role === 'operator'")
    assert tab.run("isSecureContext") and "token" not in tab.run("location.href")
    tab.click("#take")
    tab.wait_text("#control", "you have control")
    tab.close()
    stranger = browser.tab(f"https://localhost:{port}/")
    stranger.wait_text("#banner", "Not admitted")
    stranger.close()
    with urllib.request.urlopen(
        f"https://127.0.0.1:{port}/healthz", context=ssl.create_default_context(cafile=str(cert)), timeout=5
    ) as answer:
        assert "pages" in json.load(answer)
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5)


def test_a_certificate_of_another_key_ends_the_node_in_one_line(graph, tmp_path):
    cert, _ = certificate(tmp_path, "one")
    _, other = certificate(tmp_path, "two")
    node = graph.start("console_node", NODE, *ros_args({}, port=0, certificate=str(cert), key=str(other)))
    wait_until(lambda: not node.is_up, 20, "its end")
    assert node.popen.returncode == 1 and "cannot be used: " in node.text and "Traceback" not in node.text
    assert len([line for line in node.text.splitlines() if "error" in line]) == 1
