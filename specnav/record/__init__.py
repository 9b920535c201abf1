# SPDX-License-Identifier: Apache-2.0
"""`specnav record`: a robot's topics, or a simulated robot without ROS, in one mcap file that is whole or not there."""
