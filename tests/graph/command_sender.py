"""A process that publishes one motion command and then lives on: stands for a deciding node that gets killed."""

from __future__ import annotations

import sys
import time

import rclpy
from rclpy.qos import QoSProfile
from spec_vlm_nav_interfaces.msg import MotionCommand

rclpy.init()
node = rclpy.create_node("command_sender")
publisher = node.create_publisher(MotionCommand, "motion_command", QoSProfile(depth=10))
while node.count_subscribers("motion_command") < 1:
    time.sleep(0.02)
time.sleep(0.2)
message = MotionCommand(
    kind=MotionCommand.MOVE, session=5, instruction=1, sequence=1, distance_m=0.9, text="on"
)
message.deadline.nanosec = int(float(sys.argv[1]) * 1e9)
publisher.publish(message)
print("sent", flush=True)
time.sleep(60)
