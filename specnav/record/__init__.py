# SPDX-License-Identifier: Apache-2.0
"""`specnav record`: records a robot's topics, or a simulated robot without ROS, into one complete mcap file."""
