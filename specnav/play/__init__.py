# SPDX-License-Identifier: Apache-2.0
"""`specnav play`: publishes messages of a bag again, byte for byte, at the bag's own speed.

`choice` selects topics and `pace` the times, both without ROS; `live` publishes. Velocities and motion commands are
played only if they are named.
"""
