"""The parameters of motion_node."""

from __future__ import annotations

from spec_vlm_nav.backends import BACKENDS
from spec_vlm_nav.parameters import RELIABILITY, Parameter

MOTION = (
    Parameter(
        "motion_backend",
        "twist",
        "How the robot is told to move: twist (cmd_vel, any robot) or go2_sport (Unitree's sport API, no driver).",
        choices=BACKENDS,
    ),
    Parameter("rate_hz", 30.0, "Rate of cmd_vel, Hz.", 20.0, 200.0),
    Parameter("enable_stamped_cmd_vel", False, "Publish TwistStamped instead of Twist (as Nav2 names it)."),
    Parameter("cmd_vel_frame", "base_link", "frame_id of TwistStamped."),
    Parameter("odom_reliability", "best_effort", "QoS of the odometry subscription.", choices=RELIABILITY),
    Parameter(
        "max_linear", 0.5, "Fastest forward speed, m/s; also the cruising speed.", 0.05, 1.5, live=True
    ),
    Parameter("max_angular", 0.8, "Fastest yaw rate, rad/s; also the turning speed.", 0.1, 2.0, live=True),
    Parameter("linear_acceleration", 1.0, "m/s2; slowing down may be twice that.", 0.1, 10.0, live=True),
    Parameter("angular_acceleration", 3.0, "rad/s2; slowing down may be twice that.", 0.2, 30.0, live=True),
    Parameter("linear_tolerance", 0.02, "A distance counts as reached so close, m.", 0.005, 0.2, live=True),
    Parameter("angular_tolerance", 0.026, "An angle counts as reached so close, rad.", 0.005, 0.3, live=True),
    Parameter(
        "blocked_after_s", 0.7, "Asked to move but no progress for so long: blocked, s.", 0.2, 5.0, live=True
    ),
    Parameter(
        "odom_timeout_s", 0.5, "No odometry for so long: stop, s (receive time).", 0.05, 5.0, live=True
    ),
    Parameter(
        "max_command_s", 8.0, "No command is carried out for longer, whatever its deadline, s.", 0.2, 30.0
    ),
    Parameter(
        "max_frame_age_s", 30.0, "A command decided from an older frame is refused, s.", 0.1, 600.0, live=True
    ),
    Parameter("zero_burst", 5, "Stops (zero velocities) sent when the node ends.", 1, 100),
)
