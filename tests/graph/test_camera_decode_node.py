"""camera_decode_node as a process: a Go2's video topic, H.264 as CompressedImage, RTP by multicast; losses, silence."""

from __future__ import annotations

import array
import io
import itertools
import socket
import struct
import sys
import threading
import time
from fractions import Fraction

import av
import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from PIL import Image as Picture
from sensor_msgs.msg import CompressedImage, Image

from tests.graph.harness import Graph, ros_args, wait_until
from tests.graph.stand_ins import stand_in
from tests.helpers.videos import RATE, encode, number_of, picture

pytestmark = pytest.mark.graph

NODE = "spec_vlm_nav.ros.nodes.camera_decode_node"
JPEG, RAW, DIAGNOSTICS = "camera/image_raw/compressed", "camera/image_raw", "/diagnostics"
UNITS = encode(30)


@pytest.fixture(scope="module")
def overlay():
    folder = str(stand_in("unitree_go"))
    sys.path.append(folder)
    yield folder
    sys.path.remove(folder)


@pytest.fixture
def graph(tmp_path):
    with Graph(tmp_path) as running:
        running.probe.listen(CompressedImage, JPEG, reliable=False)
        running.probe.listen(Image, RAW, reliable=False)
        running.probe.listen(DiagnosticArray, DIAGNOSTICS)
        yield running


def start(graph, environment=None, **parameters):
    process = graph.start("camera_decode_node", NODE, *ros_args(**parameters), **(environment or {}))
    process.wait_for("camera_decode_node ready")
    wait_until(lambda: health(graph) is not None, 10, "diagnostics")
    return process


def health(graph):
    heard = graph.probe.heard(DIAGNOSTICS)
    return heard[-1].message.status[0] if heard else None


def say_h264(graph, number, data, kind="h264"):
    message = CompressedImage(format=kind, data=array.array("B", data))
    message.header.stamp.sec, message.header.frame_id = number, "front"
    graph.probe.say("video", message)
    # Both ends keep the newest only: on a busy machine the next must not come before it was taken.
    seen, until = len(graph.probe.heard(JPEG)), time.monotonic() + 0.12
    while len(graph.probe.heard(JPEG)) == seen and time.monotonic() < until:
        time.sleep(0.01)


def shown(heard):
    """Which picture a message shows."""
    if isinstance(heard.message, CompressedImage):
        picture = Picture.open(io.BytesIO(bytes(heard.message.data)))
        return number_of(np.asarray(picture.convert("RGB")))
    image = heard.message
    return number_of(np.frombuffer(bytes(image.data), np.uint8).reshape(image.height, image.width, 3))


def test_compressed_video_with_losses_and_garbage_then_silence(graph):
    process = start(graph, source="topic_h264", max_rate_hz=120.0, video_reliability="reliable")
    for number, data in enumerate(UNITS):
        time.sleep(0.015)  # of pictures that come quicker than 120 a second some are left out
        if number == 4:
            say_h264(graph, 900, b"noise" * 40)
            say_h264(graph, 901, b"")
        elif number == 15:
            say_h264(graph, 902, data[: len(data) // 2])
        else:
            say_h264(graph, number, data)
    say_h264(graph, 903, UNITS[-1])
    say_h264(graph, 904, UNITS[0], "jpeg")
    wait_until(lambda: len(graph.probe.heard(JPEG)) >= 19, 5, "pictures", lambda: process.text)
    time.sleep(0.2)
    heard = graph.probe.heard(JPEG)
    # 4 never came, so 5 to 9 show nothing; 15 was cut.
    assert [h.message.header.stamp.sec for h in heard] == [0, 1, 2, 3, *range(10, 15), *range(20, 30)]
    assert all(shown(h) == h.message.header.stamp.sec for h in heard)
    assert {h.message.header.frame_id for h in heard} == {"front"}
    assert process.text.count("video has the format 'jpeg', not h264") == 1
    wait_until(lambda: "silent for" in health(graph).message, 5, "silence on /diagnostics")
    status = health(graph)
    figures = {value.key: value.value for value in status.values}
    assert status.level == b"\x02" and status.name == "camera_decode_node: video"
    assert (figures["pictures"], figures["not_h264"], figures["empty"]) == ("19", "1", "1")
    assert int(figures["lost"]) == 1 and int(figures["damaged"]) == 1 and figures["repeated"] == "1"
    assert 0 < float(figures["decode_ms_p50"]) < 50 and figures["size"] == "320x200"
    assert len(graph.probe.heard(JPEG)) == len(heard)
    assert process.end() == 0 and "Traceback" not in process.text


def test_the_video_of_a_go2_as_raw_pictures_at_a_bounded_rate(graph, overlay):
    from unitree_go.msg import Go2FrontVideoData

    process = start(
        graph, {"PYTHONPATH": overlay}, source="topic_unitree", output="raw", max_width=160, max_rate_hz=10.0
    )
    for data in UNITS[:20]:
        graph.probe.say("video", Go2FrontVideoData(time_frame=7, video720p=array.array("B", data)))
        time.sleep(0.02)
    wait_until(lambda: len(graph.probe.heard(RAW)) >= 3, 5, "pictures", lambda: process.text)
    heard = graph.probe.heard(RAW)
    assert {(h.message.width, h.message.height, h.message.step) for h in heard} == {(160, 100, 480)}
    assert {h.message.header.frame_id for h in heard} == {"front_camera"} and heard[
        0
    ].message.encoding == "rgb8"
    assert abs(heard[0].message.header.stamp.sec - time.time()) < 60
    assert len(heard) <= 8
    graph.probe.say("video", Go2FrontVideoData(video360p=array.array("B", UNITS[0])))
    process.wait_for("video720p is empty: set resolution to 360p", 5)


def test_without_unitrees_package_one_line_names_it(graph):
    process = graph.start("camera_decode_node", NODE)
    assert process.popen.wait(20) == 1
    assert "error: source topic_unitree needs the ROS package unitree_go" in process.text
    assert "Traceback" not in process.text


def send_rtp(host, port, end):
    """What a Go2's GStreamer does: RTP by UDP, here on the loopback only."""
    with av.open(f"rtp://{host}:{port}?pkt_size=1200&localaddr=127.0.0.1&ttl=0", "w", format="rtp") as out:
        stream = out.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt, stream.codec_context.gop_size = 320, 200, "yuv420p", 5
        stream.codec_context.options = {
            "preset": "ultrafast", "tune": "zerolatency", "x264-params": "repeat-headers=1:annexb=1:keyint=5",
        }  # fmt: skip
        number = 0
        while not end.wait(1 / RATE):
            frame = av.VideoFrame.from_ndarray(picture(number % 30, 320, 200), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            for packet in stream.encode(frame):
                out.mux(packet)
            number += 1


def sending(port):
    end = threading.Event()
    thread = threading.Thread(target=send_rtp, args=("230.1.1.1", port, end), daemon=True)
    thread.start()
    return end, thread


def test_multicast_that_begins_late_stops_and_begins_again(graph):
    port = 20000 + graph.domain
    process = start(graph, source="url", url=f"udp://230.1.1.1:{port}", interface="127.0.0.1", silence_s=0.5)
    for _ in range(2):
        wait_until(lambda: health(graph).level == b"\x02", 10, "silence on /diagnostics")
        since = time.monotonic()
        end, thread = sending(port)
        wait_until(
            lambda since=since: len(graph.probe.heard(JPEG, since)) >= 10,
            15,
            "pictures",
            lambda: process.text,
        )
        wait_until(lambda: health(graph).level == b"\x00", 5, "a healthy stream")
        end.set()
        thread.join(5)
        numbers = [shown(h) for h in graph.probe.heard(JPEG, since)]
        # A busy machine may leave pictures out, but shows none twice and no earlier one.
        assert all(1 <= (b - a) % 30 <= 9 for a, b in itertools.pairwise(numbers)), numbers
    assert process.end() == 0 and "Traceback" not in process.text


def test_video_before_simulated_time_begins_does_not_end_the_node(graph):
    port = 20000 + graph.domain
    process = start(graph, source="url", url=f"udp://127.0.0.1:{port}", use_sim_time=True)
    packet = struct.pack("!BBHII", 0x80, 0x80 | 96, 1, 1, 7) + b"\x41" + bytes(200)  # a whole picture, of nothing
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(packet, ("127.0.0.1", port))
    wait_until(
        lambda: {v.key: v.value for v in health(graph).values}.get("rtp_packets") == "1",
        5,
        "the packet",
        lambda: process.text,
    )
    assert process.end() == 0
