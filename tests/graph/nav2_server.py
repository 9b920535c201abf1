"""A process that stands in for Nav2's behavior_server: drives the base of the tests by Twists, or fails as it is told.

The topic `nav2_mode` says how: obey, abort (with the error code for a collision), reject, ignore (does not
accept a request to cancel). What it was asked for and the result is printed.
"""

from __future__ import annotations

import math
import threading
import time

import rclpy
from geometry_msgs.msg import Twist
from nav2_msgs.action import DriveOnHeading, Spin
from nav_msgs.msg import Odometry
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor, SingleThreadedExecutor
from std_msgs.msg import String

rclpy.init()
node = rclpy.create_node("behavior_server")
group = ReentrantCallbackGroup()
velocities = node.create_publisher(Twist, "cmd_vel", 10)
where = {"x": 0.0, "yaw": 0.0, "mode": "obey"}


def say(text):
    print(text, flush=True)


def on_odometry(message):
    where["x"] = message.pose.pose.position.x
    where["yaw"] = 2 * math.atan2(message.pose.pose.orientation.z, message.pose.pose.orientation.w)


def on_mode(message):
    where["mode"] = message.data
    say(f"mode {message.data}")


def on_goal(goal):
    return GoalResponse.REJECT if where["mode"] == "reject" else GoalResponse.ACCEPT


def on_cancel(handle):
    say("cancel asked for")
    return CancelResponse.REJECT if where["mode"] == "ignore" else CancelResponse.ACCEPT


def execute(handle, result, axis, amount, twist):
    goal = handle.request
    allowance = goal.time_allowance.sec + goal.time_allowance.nanosec * 1e-9
    say(f"goal {axis} {amount:.3f} speed {getattr(goal, 'speed', 0.0):.3f} allowance {allowance:.2f}")
    begin, until = where[axis], time.monotonic() + allowance
    if where["mode"] == "abort":
        if hasattr(result, "error_code"):
            result.error_code, result.error_msg = type(result).COLLISION_AHEAD, "a wall"
        handle.abort()
        return result
    while abs(where[axis] - begin) < abs(amount) and time.monotonic() < until:
        if handle.is_cancel_requested:
            velocities.publish(Twist())
            handle.canceled()
            say("canceled")
            return result
        velocities.publish(twist)
        time.sleep(0.02)
    velocities.publish(Twist())
    handle.succeed()
    say("succeeded")
    return result


def drive(handle):
    twist = Twist()
    twist.linear.x = handle.request.speed
    return execute(handle, DriveOnHeading.Result(), "x", handle.request.target.x, twist)


def spin(handle):
    twist = Twist()
    twist.angular.z = math.copysign(0.8, handle.request.target_yaw)
    return execute(handle, Spin.Result(), "yaw", handle.request.target_yaw, twist)


callbacks = {"goal_callback": on_goal, "cancel_callback": on_cancel, "callback_group": group}
servers = [
    ActionServer(node, DriveOnHeading, "drive_on_heading", drive, **callbacks),
    ActionServer(node, Spin, "spin", spin, **callbacks),
]
node.create_subscription(String, "nav2_mode", on_mode, 10, callback_group=group)
# Odometry has a thread of its own: behind the goals' callbacks it came up to 0.3 s late, and the base drove on.
eyes = rclpy.create_node("behavior_server_odometry")
eyes.create_subscription(Odometry, "odom", on_odometry, 10)
looking = SingleThreadedExecutor()
looking.add_node(eyes)
threading.Thread(target=looking.spin, daemon=True).start()
executor = MultiThreadedExecutor(4)
executor.add_node(node)
say("ready")
executor.spin()
