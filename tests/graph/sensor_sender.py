"""A sensor as a process of its own: depth images of 640x480 at 30 Hz, or clouds of 60,000 points at 15 Hz.

Its messages are serialised once, so that it costs little and the process it sends to is what is measured.
"""

from __future__ import annotations

import array
import sys

import numpy as np
import rclpy
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image, PointCloud2, PointField

POINTS, STEP = 60_000, 32  # a point of the Go2's laser has 32 bytes


def depth() -> Image:
    """A room whose far wall is 2 m away; 16UC1."""
    pixels = np.full((480, 640), 2000, "<u2")
    return Image(encoding="16UC1", width=640, height=480, step=1280, data=array.array("B", pixels.tobytes()))


def cloud(ahead_m: float = 2.0, points: int = POINTS, height_m: float = 0.32) -> PointCloud2:
    """A floor all round and a wall ahead, seen from a frame `height_m` over the floor."""
    chance = np.random.default_rng(1)
    values = np.zeros((points, STEP // 4), "<f4")
    values[:, 0] = chance.uniform(-3.0, ahead_m, points)
    values[:, 1] = chance.uniform(-3.0, 3.0, points)
    values[:, 2] = -height_m
    wall = values[: points // 3]
    wall[:, 0], wall[:, 2] = ahead_m, chance.uniform(-height_m, 1.0, len(wall))
    fields = [PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
    message = PointCloud2(height=1, width=points, point_step=STEP, row_step=STEP * points, is_dense=True)
    message.fields, message.data = fields, array.array("B", values.tobytes())
    message.header.frame_id = "base_link"
    return message


def main() -> None:
    """`python -m tests.graph.sensor_sender depth 30` or `cloud 15`."""
    what, rate = sys.argv[1], float(sys.argv[2])
    rclpy.init()
    node = Node("sensor_sender")
    message = depth() if what == "depth" else cloud()
    data = serialize_message(message)
    qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
    publisher = node.create_publisher(type(message), what, qos)
    node.create_timer(1 / rate, lambda: publisher.publish(data))
    print(f"sending {what}", flush=True)
    rclpy.spin(node)


if __name__ == "__main__":
    main()
