# SPDX-License-Identifier: Apache-2.0
"""`specnav blackbox`: lists the robot's black-box files, or prints one as a timeline. Needs no ROS."""
