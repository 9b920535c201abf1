"""A process that publishes one motion command and then lives on: stands for a deciding node that gets killed."""

from __future__ import annotations

import sys
import time

import rclpy
from rclpy.qos import QoSProfile
from spec_vlm_nav_interfaces.msg import MotionCommand, Supervision

from spec_vlm_nav.ros.session import CommandSession

rclpy.init()
node = rclpy.create_node("command_sender")
life = node.create_publisher(Supervision, "supervision", QoSProfile(depth=10))
publisher = node.create_publisher(MotionCommand, "motion_command", QoSProfile(depth=10))
while node.count_subscribers("motion_command") < 1:
    time.sleep(0.02)
time.sleep(0.2)
session = CommandSession()
life.publish(session.introduce(Supervision(camera_age_s=-1.0, verifier_age_s=-1.0)))
time.sleep(0.1)
message = session.sign(MotionCommand(kind=MotionCommand.MOVE, instruction=1, distance_m=0.9, text="on"))
message.deadline.nanosec = int(float(sys.argv[1]) * 1e9)
publisher.publish(message)
print("sent", flush=True)
time.sleep(60)
