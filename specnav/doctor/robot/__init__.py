# SPDX-License-Identifier: Apache-2.0
"""`specnav doctor --robot`: checks a live ROS graph and finds what keeps the robot from moving.

Terms: *facts* are what was gathered about the graph, once. A *role* is the purpose of a topic (image, odom, cmd_vel),
whatever its name is. A *check* is a pure function from facts to *lines*, each with a verdict (ok, warn, FAIL) and, if
it is not ok, a remedy. FAIL means that the robot does not obey in this state.

Nothing here publishes anything, or calls a service that changes something.
"""
