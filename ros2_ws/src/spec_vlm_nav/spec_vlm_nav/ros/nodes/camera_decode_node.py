# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
The node that decodes a camera's H.264 video and publishes pictures for `vlm_nav_node`.

It is a thin shell around H264Decoder (bytes to pictures), UrlReader (bytes from the network) and
StreamDiagnostics.
"""

from __future__ import annotations

import array
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
import time
from typing import Any, NoReturn

from builtin_interfaces.msg import Time
from rclpy.node import Node
from rclpy.time import Time as Moment
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav.camera.decode import DecodedPicture, H264Decoder, StreamDiagnostics
from spec_vlm_nav.camera.images import to_jpeg
from spec_vlm_nav.camera.parameters import CAMERA
from spec_vlm_nav.camera.video_url import parse_interface, parse_url, UrlReader
from spec_vlm_nav.common.diagnostics import DiagnosticRow
from spec_vlm_nav.ros.basics import Diagnostics, qos, TextThrottle, unitree_types
from spec_vlm_nav.ros.declare import declare, follow_changes
from spec_vlm_nav.ros.run import leave, run
from std_msgs.msg import Header

WAITING_PACKETS = 64  # queued network packets; older video is not worth keeping


class CameraDecodeNode:
    """ROS shell around H264Decoder."""

    def __init__(self) -> None:
        self.node = node = Node("camera_decode_node")
        self._warn = TextThrottle(node.get_logger().warning)
        self._values = values = declare(node, CAMERA)
        self._decoder = H264Decoder(strict=bool(values["require_key_picture"]))
        self._stream = StreamDiagnostics()
        self._heard_at: float | None = None
        self._published, self._published_at = 0, -1e9
        self._reader: UrlReader | None = None
        self._packets: deque[tuple[bytes, float]] = deque(maxlen=WAITING_PACKETS)
        self._compressed = values["output"] == "compressed"
        newest = qos("best_effort", 1)
        if self._compressed:
            self._pictures = node.create_publisher(CompressedImage, "camera/image_raw/compressed", newest)
        else:
            self._pictures = node.create_publisher(Image, "camera/image_raw", newest)
        # Every message counts: a lost one makes all pictures up to the next key frame undecodable.
        every = qos(values["video_reliability"], 30)
        if values["source"] == "topic_unitree":
            user, instead = "source topic_unitree", ", or use source url"
            (kind,) = unitree_types("unitree_go", ("Go2FrontVideoData",), user, instead)
            node.create_subscription(kind, "video", self._on_unitree, every)
        elif values["source"] == "topic_h264":
            node.create_subscription(CompressedImage, "video", self._on_h264, every)
        else:
            where = parse_url(str(values["url"]))
            self._wake = node.create_guard_condition(self._on_packets)
            interface = parse_interface(str(values["interface"]))
            self._reader = UrlReader(where, interface, self._post, self._warn)
        follow_changes(node, CAMERA, values, lambda _: None)
        Diagnostics(node, self._diagnostic_rows)
        node.get_logger().info(f"camera_decode_node ready: {values['source']}")

    # -- inputs

    def _on_unitree(self, message: Any) -> None:
        wanted = f"video{self._values['resolution']}"
        data = bytes(getattr(message, wanted))
        if not data:
            others = [n for n in ("720p", "360p", "180p") if len(getattr(message, f"video{n}"))]
            self._warn(
                f"{wanted} is empty" + (f": set resolution to {' or '.join(others)}" if others else "")
            )
        # The epoch of the message's own time is undocumented: the receive time is used.
        self._feed(
            data, self.node.get_clock().now().to_msg(), str(self._values["frame_id"]), time.monotonic()
        )

    def _on_h264(self, message: CompressedImage) -> None:
        if "264" not in message.format:
            self._warn(f"video has the format '{message.format}', not h264")
            return
        frame_id = message.header.frame_id or str(self._values["frame_id"])
        self._feed(bytes(message.data), message.header.stamp, frame_id, time.monotonic())

    def _post(self, data: bytes, at: float) -> None:
        """Queue received bytes; called by the reader's thread."""
        self._packets.append((data, at))
        self._wake.trigger()

    def _on_packets(self) -> None:
        while self._packets:
            data, at = self._packets.popleft()
            stamp_ns = self.node.get_clock().now().nanoseconds - int((time.monotonic() - at) * 1e9)
            stamp = Moment(nanoseconds=max(0, stamp_ns)).to_msg()  # simulated time may still be 0
            self._feed(data, stamp, str(self._values["frame_id"]), at)

    # -- outputs

    def _feed(self, data: bytes, stamp: Time, frame_id: str, at: float) -> None:
        self._heard_at = at
        for picture in self._decoder.feed(data, (stamp.sec, stamp.nanosec)):
            now = time.monotonic()
            # 10 % tolerance, so that jitter does not drop every second picture.
            if now - self._published_at >= 0.9 / float(self._values["max_rate_hz"]):
                self._published_at = now
                self._publish(picture, frame_id)

    def _publish(self, picture: DecodedPicture, frame_id: str) -> None:
        self._published += 1
        image = picture.image(int(self._values["max_width"]))
        header = Header(stamp=Time(sec=picture.stamp[0], nanosec=picture.stamp[1]), frame_id=frame_id)
        if self._compressed:
            out = CompressedImage(header=header, format="jpeg")
            out.data = array.array("B", to_jpeg(image, int(self._values["jpeg_quality"])))
        else:
            out = Image(header=header, encoding="rgb8", width=image.width, height=image.height)
            out.step, out.data = 3 * image.width, array.array("B", image.tobytes())
        self._pictures.publish(out)

    def _diagnostic_rows(self) -> list[DiagnosticRow]:
        silence_s = float(self._values["silence_s"])
        now = time.monotonic()
        row = self._stream.report(self._decoder, self._published, self._heard_at, now, silence_s)
        if self._reader is not None:
            rtp = {f"rtp_{name}": count for name, count in vars(self._reader.counts).items()}
            row = replace(row, values={**row.values, **rtp})
        return [row]

    def close(self) -> None:
        """End the reader."""
        if self._reader is not None:
            self._reader.close()


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point."""
    leave(run(CameraDecodeNode, args))


if __name__ == "__main__":
    main()
