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
The node that keeps the last minute of all topics in memory and writes it to a file at a fault.

It is a separate, listen-only process, so that writing never slows decisions or motions. Messages
are kept as received bytes; only topics that may trigger a recording are decoded.
"""

from __future__ import annotations

import array
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
import time
from typing import Any, NoReturn

from rclpy.node import Node
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav.blackbox.box import BlackBox, MB
from spec_vlm_nav.blackbox.definitions import definition_of, installed_definition
from spec_vlm_nav.blackbox.folder import default_folder, Folder
from spec_vlm_nav.blackbox.parameters import BLACKBOX, box_config, check_blackbox
from spec_vlm_nav.blackbox.triggers import Trigger
from spec_vlm_nav.blackbox.writer import FileThread, PictureEncoder, Written
from spec_vlm_nav.camera.images import from_raw, to_jpeg
from spec_vlm_nav.common.diagnostics import DiagnosticRow
from spec_vlm_nav.common.errors import BlackboxError
from spec_vlm_nav.common.kept_file import given_path
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.ros.basics import Diagnostics, steady_timer, TextThrottle
from spec_vlm_nav.ros.blackbox import (
    heard_topics,
    NodeParameters,
    RecordedTopic,
    subscribe_raw,
    type_name,
    versions,
)
from spec_vlm_nav.ros.declare import declare, follow_changes
from spec_vlm_nav.ros.messages import raw_of, status_of
from spec_vlm_nav.ros.run import leave, run
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionStatus
from std_srvs.srv import Trigger as TriggerService

TICK_S = 0.1
ASK_S = 5.0  # interval of asking nodes for unknown parameters
DEPTH_S = 1.0  # interval of kept depth images: they cannot be compressed much
CLOSE_S = 4.0  # within END_S of run.py


class BlackboxNode:
    """ROS shell around BlackBox, FileThread and PictureEncoder."""

    def __init__(self) -> None:
        self.node = node = Node("blackbox_node")
        self._warn = TextThrottle(node.get_logger().warning)
        self._values = values = declare(node, BLACKBOX, check=check_blackbox)
        heard = heard_topics(
            str(values["image_transport"]),
            bool(values["enable_stamped_cmd_vel"]),
            str(values["collision_source"]),
        )
        raw = values["image_transport"] == "raw"
        names = {one.name: node.resolve_topic_name(one.name) for one in heard}
        if raw:  # stored like image_transport's compressed topic
            names["image"] += "/compressed"
        self._box = BlackBox(
            box_config(values),
            {names[one.name] for one in heard if one.picture},
            {names[one.name] for one in heard if one.lasting},
            self._on_trigger,
        )
        self._folder = self._open_folder()
        self._written: deque[Written] = deque()  # results of the file thread
        self._files = FileThread(self._folder, self._file_writer(heard, names), self._written.append)
        self._encoder = self._make_encoder(names["image"]) if raw else None
        self._parameters, self._versions = NodeParameters(node), versions()
        self._failed, self._trouble = 0, ""
        self._asked_at = -ASK_S
        self._depth_at = -DEPTH_S
        for one in heard:
            subscribe_raw(node, one, self._taker(one, names[one.name]))
        follow_changes(node, BLACKBOX, values, self._apply, check=check_blackbox)
        node.create_service(TriggerService, "~/write", self._on_write_request)
        steady_timer(node, TICK_S, self._tick)
        Diagnostics(node, self._diagnostic_rows)
        node.get_logger().info(f"blackbox_node ready: files go into {self._folder.path}")

    # -- setup

    def _open_folder(self) -> Folder:
        namespace = self.node.get_namespace()[1:]
        path = given_path("folder", str(self._values["folder"]), lambda: default_folder() / namespace)
        folder = Folder(path, int(self._values["disk_mb"]) * MB)
        if why_not := folder.prepare():
            self._warn(f"no file can be written at the moment: {why_not}")
        return folder

    def _file_writer(self, heard: Sequence[RecordedTopic], names: dict[str, str]) -> Callable[..., None]:
        try:
            from spec_vlm_nav.blackbox.mcap_file import Channel, write_mcap
        except ImportError as error:
            raise BlackboxError(
                f"blackbox_node needs the library mcap: pip install mcap ({error})"
            ) from error
        kinds = {names[one.name]: type_name(one.kind) for one in heard}
        if self._values["image_transport"] == "raw":
            kinds[names["image"]] = type_name(CompressedImage)
        known = {kind: definition_of(kind, installed_definition) for kind in set(kinds.values())}
        if missing := sorted(kind for kind, definition in known.items() if definition is None):
            self.node.get_logger().warning(
                f"no definition of {', '.join(missing)} is installed: files hold these messages, "
                "but Foxglove cannot show them"
            )
        channels = {name: Channel(kind, known[kind]) for name, kind in kinds.items()}
        return partial(write_mcap, channels=channels)

    def _make_encoder(self, topic: str) -> PictureEncoder:
        def encode(data: bytes) -> bytes:
            message: Image = deserialize_message(data, Image)
            jpeg = to_jpeg(from_raw(raw_of(message)), int(self._values["jpeg_quality"]))
            compressed = CompressedImage(header=message.header, format="jpeg")
            compressed.data = array.array("B", jpeg)
            return bytes(serialize_message(compressed))

        def put(at: float, data: bytes) -> None:
            self._box.ring.add(at, topic, data)

        return PictureEncoder(encode, put, self._warn, float(self._values["raw_rate_hz"]))

    def _apply(self, values: dict[str, Value]) -> None:
        self._box.configure(box_config(values))
        self._folder.max_bytes = int(values["disk_mb"]) * MB
        if self._encoder is not None:
            self._encoder.rate_hz = float(values["raw_rate_hz"])

    # -- inputs

    def _taker(self, heard: RecordedTopic, name: str) -> Callable[[bytes], None]:
        """Return the callback of a topic: it keeps the message and checks it for triggers."""
        if heard.name == "image" and self._encoder is not None:
            encoder = self._encoder
            return lambda data: encoder.offer(time.monotonic(), data)
        looks: dict[str, Callable[[Any, float], None]] = {
            "motion_status": self._on_status,
            "vlm_nav_node/metrics": self._on_metrics,
            "vlm_nav_node/outcome": lambda message, now: self._box.on_ended(message.data, now),
            "instruction": lambda message, now: self._box.on_instruction(message.data),
            "e_stop": lambda message, now: self._box.on_button(message.data, now),
        }
        look, kind = looks.get(heard.name), heard.kind

        def take(data: bytes) -> None:
            now = time.monotonic()
            if heard.name == "depth":
                if now - self._depth_at < 0.9 * DEPTH_S:
                    return
                self._depth_at = now
            self._box.ring.add(now, name, data)
            if look is None:
                return
            try:
                look(deserialize_message(data, kind), now)
            except Exception as error:  # rmw raises its own exception types for invalid bytes
                self._warn(f"{name}: a message cannot be read: {' '.join(str(error).split())}")

        return take

    def _on_status(self, message: MotionStatus, now: float) -> None:
        if (status := status_of(message)) is not None:
            self._box.on_status(status, now)

    def _on_metrics(self, message: DecisionMetrics, now: float) -> None:
        stamp = message.frame_stamp
        self._box.on_decided((stamp.sec, stamp.nanosec), message.instruction_text, now)

    def _on_write_request(
        self, request: TriggerService.Request, response: TriggerService.Response
    ) -> TriggerService.Response:
        now = time.monotonic()
        self._box.ask(now)
        response.success = True
        due_s = self._box.schedule.due_in_s(now)
        response.message = f"a file is written into {self._folder.path} in {due_s:.0f} s"
        return response

    # -- outputs

    def _on_trigger(self, trigger: Trigger) -> None:
        self._parameters.ask()
        due_s = self._box.schedule.due_in_s(time.monotonic())
        self.node.get_logger().warning(f"{trigger}; a file is written in {due_s:.0f} s")

    def _tick(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if self._parameters.missing and now - self._asked_at >= ASK_S:
            self._asked_at = now
            self._parameters.ask()
        if not self._files.is_busy:
            facts = {
                "namespace": self.node.get_namespace(),
                "versions": self._versions,
                "parameters": {**self._parameters.known, "blackbox_node": dict(self._values)},
            }
            recording = self._box.take(now, time.time_ns(), facts, at_once)
            if recording is not None:
                self._files.submit(recording)
        self._tell()

    def _tell(self) -> None:
        while self._written:
            written = self._written.popleft()
            self._trouble = written.error
            if written.path is None:
                self._failed += 1
                self.node.get_logger().error(f"{written.word}: {written.error}")
                continue
            self.node.get_logger().info(
                f"{written.word}: {written.path} ({written.length_s:.1f} s, "
                f"{written.size / MB:.1f} MB; {written.usage.files} files, "
                f"{written.usage.size / MB:.1f} MB)"
            )

    def _diagnostic_rows(self) -> list[DiagnosticRow]:
        usage, most, now = self._files.usage, self._folder.max_bytes, time.monotonic()
        return [self._box.row(usage, most, self._failed, self._trouble, now)]

    def close(self) -> None:
        """Write a due recording, and end the threads."""
        deadline = time.monotonic() + CLOSE_S
        while self._files.is_busy and time.monotonic() < deadline:
            time.sleep(0.01)
        self._tick(at_once=True)
        if not self._files.close(max(0.1, deadline - time.monotonic())):
            self.node.get_logger().error("the last file was not written in time")
        self._tell()
        if self._encoder is not None:
            self._encoder.close(0.1)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point."""
    leave(run(BlackboxNode, args))


if __name__ == "__main__":
    main()
