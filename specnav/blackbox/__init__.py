# SPDX-License-Identifier: Apache-2.0
"""`specnav blackbox`: what the robot's black box has written, as a list, and one file as a timeline. Needs no ROS."""
