# SPDX-License-Identifier: Apache-2.0
"""`specnav doctor`: checks what this machine can run, or the state of a live ROS graph."""
