"""vlm_nav_node alone against bad input: each is one clear line, and a stop where a robot is concerned."""

from __future__ import annotations

import io
import json
import shutil
import threading
import time

import pytest
import zmq
from PIL import Image as Picture
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand
from std_msgs.msg import String

from specdec.link.wire import PROTOCOL_VERSION, Welcome, encode
from tests.graph.harness import Graph, ros_args, wait_until
from tests.graph.stack import METRICS, free_port

pytestmark = pytest.mark.graph
NODE = "spec_vlm_nav.ros.nodes.vlm_nav_node"


@pytest.fixture
def graph(tmp_path):
    with Graph(tmp_path) as running:
        running.probe.listen(DecisionMetrics, METRICS)
        running.probe.listen(MotionCommand, "motion_command")
        yield running


def start(graph, pair, **parameters):
    # There is no verifier; that the monitor says so is tested elsewhere, here each decision finds it out by itself.
    address = f"tcp://127.0.0.1:{free_port()}"
    given = {"draft_model": str(pair.draft), "verifier": address, "link_timeout_s": 30.0, **parameters}
    return graph.start("vlm_nav_node", NODE, *ros_args(**given))


def jpeg(size=(224, 140)):
    out = io.BytesIO()
    Picture.new("RGB", size, (90, 120, 150)).save(out, "JPEG")
    return out.getvalue()


class Camera:
    """Fake camera: publishes the same message at 10 Hz until closed."""

    def __init__(self, graph, message):
        self.message = message
        self._end = threading.Event()
        graph.probe.say("image", message)
        self._thread = threading.Thread(target=self._run, args=(graph,), daemon=True)
        self._thread.start()

    def _run(self, graph):
        while not self._end.wait(0.1):
            graph.probe.say("image", self.message)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join(2)


def said(node, level):
    return [line for line in node.text.splitlines() if f"[{level}]" in line]


def wait_for_code(graph, code, count=1):
    wait_until(
        lambda: sum(h.message.error_code == code for h in graph.probe.heard(METRICS)) >= count,
        15,
        f"error code {code}",
    )


def nothing_moved(graph):
    return all(h.message.kind != MotionCommand.MOVE for h in graph.probe.heard("motion_command"))


def test_bad_instructions_and_broken_frames_are_one_line_each_and_a_stop(graph, pair):
    node = start(graph, pair, method="ar")
    node.wait_for("ready", 60)
    for text, why in (
        ("", "empty instruction refused"),
        ("x" * 100_000, "instruction of 100000 characters refused"),
    ):
        before, at = len(said(node, "ERROR")), time.monotonic()
        graph.probe.say("instruction", String(data=text))
        wait_until(lambda at=at: graph.probe.heard("motion_command", at) != [], 5, "STOP")
        assert graph.probe.heard("motion_command", at)[-1].message.kind == MotionCommand.STOP
        wait_until(lambda before=before: len(said(node, "ERROR")) == before + 1, 5, "one line")
        assert why in said(node, "ERROR")[-1] and len(said(node, "ERROR")[-1]) < 300
    graph.probe.say("instruction", String(data="find the red chair"))
    with Camera(graph, CompressedImage(format="jpeg", data=jpeg()[:-300])):
        wait_for_code(graph, DecisionMetrics.INVALID_INPUT, 5)
    assert len([line for line in said(node, "WARN") if "corrupt camera frame" in line]) == 1
    assert nothing_moved(graph) and "Traceback" not in node.text


def test_no_camera_and_then_no_verifier_are_said_once_not_in_a_flood(graph, pair):
    node = start(graph, pair, connect_timeout_s=0.3, resume_timeout_s=2.0)
    node.wait_for("ready", 60)
    graph.probe.say("instruction", String(data="find the red chair"))
    wait_for_code(graph, DecisionMetrics.STALE_CAMERA)
    time.sleep(2.0)
    assert len([line for line in said(node, "WARN") if "no camera frames" in line]) == 1
    with Camera(graph, CompressedImage(format="jpeg", data=jpeg())):
        wait_for_code(graph, DecisionMetrics.LINK_LOST, 3)
    lines = [line for line in said(node, "WARN") if "no verifier answers at" in line]
    assert len(lines) == 1 and "tries again" in lines[0] and nothing_moved(graph)


def test_raw_images_are_taken_when_asked_for_and_unknown_encodings_refused(graph, pair):
    node = start(graph, pair, method="ar", image_transport="raw", connect_timeout_s=0.2)
    node.wait_for("ready", 60)
    graph.probe.say("instruction", String(data="find the red chair"))
    good = Image(height=140, width=224, encoding="bgr8", step=672, data=b"\x60" * (140 * 672))
    with Camera(
        graph, Image(height=140, width=224, encoding="yuv422", step=448, data=bytes(140 * 448))
    ) as camera:
        wait_for_code(graph, DecisionMetrics.INVALID_INPUT)
        camera.message = good
        # The frame is fine now: what is missing is the verifier.
        wait_for_code(graph, DecisionMetrics.LINK_LOST)
    assert any("camera encoding 'yuv422' is not supported" in line for line in said(node, "WARN"))


def test_a_verifier_of_another_version_is_named_as_such(graph, pair):
    context = zmq.Context()
    other = context.socket(zmq.ROUTER)
    other.setsockopt(zmq.LINGER, 0)
    port = other.bind_to_random_port("tcp://127.0.0.1")
    end = threading.Event()

    def answer():
        welcome = encode(Welcome(PROTOCOL_VERSION + 1))
        while not end.is_set():
            if other.poll(50):
                peer, *_ = other.recv_multipart()
                other.send_multipart([peer, welcome])

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        node = start(graph, pair, verifier=f"tcp://127.0.0.1:{port}")
        node.wait_for("ready", 60)
        graph.probe.say("instruction", String(data="find the red chair"))
        with Camera(graph, CompressedImage(format="jpeg", data=jpeg())):
            wait_for_code(graph, DecisionMetrics.LINK_LOST)
        assert any("install the same release on both sides" in line for line in said(node, "WARN"))
    finally:
        end.set()
        thread.join(2)
        other.close()
        context.term()


def test_a_model_folder_that_is_missing_is_one_line_and_exit_code_1_as_a_user_starts_it(graph, pair, tmp_path, afresh):
    refused_for_its_model(start(graph, pair, draft_model=str(tmp_path / "model")), tmp_path / "model")


def test_a_model_folder_that_cannot_be_used_is_one_line_and_exit_code_1(graph, pair, tmp_path):
    started = {}
    for fault in ("another type", "no weights"):
        folder = tmp_path / fault
        shutil.copytree(pair.draft, folder)
        if fault == "another type":
            config = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))
        else:
            (folder / "model.safetensors").unlink()
        started[folder] = start(graph, pair, draft_model=str(folder))
    for folder, node in started.items():
        refused_for_its_model(node, folder)


def refused_for_its_model(node, folder):
    assert node.popen.wait(120) == 1
    lines = [line for line in node.text.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and str(folder) in lines[0] and "Traceback" not in node.text


def test_a_wrong_parameter_is_refused_in_one_line(graph, pair):
    refused = [
        (start(graph, pair, **parameters), line)
        for parameters, line in (
            ({"gamma": 99}, "parameter gamma = 99 refused: allowed is int, 1 to 32"),
            ({"method": "magic"}, "parameter method = 'magic' refused: allowed is one of ar, cloud-sd, sd"),
            ({"exploration": "wild"}, "allowed is one of auto, frontier_search, none"),
            ({"prompt": "poetry"}, "no prompt preset 'poetry'"),
        )
    ]
    for node, line in refused:
        assert node.popen.wait(60) == 1
        assert line in node.text and "Traceback" not in node.text
