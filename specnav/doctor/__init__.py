# SPDX-License-Identifier: Apache-2.0
"""`specnav doctor`: what this machine can run, and what a live ROS graph is like."""
