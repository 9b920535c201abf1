# SPDX-License-Identifier: Apache-2.0
"""`specnav doctor --robot`: what a live ROS graph is like, and what keeps the robot from moving.

Words: *facts* are what was gathered of the graph, once; a *role* is what a topic is for (image, odom, cmd_vel),
whatever it is called here; a *check* is a pure function from facts to *lines*, each with a verdict (ok, warn, FAIL)
and with what to do where it is not ok. FAIL: as things are, the robot does not do what it is told.

Nothing here publishes anything, or calls a service that changes something.
"""
