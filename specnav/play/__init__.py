# SPDX-License-Identifier: Apache-2.0
"""`specnav play`: publishes messages of a bag again, byte for byte, at the bag's own speed.

`choice` selects topics and `pace` the times, both without ROS; `live` publishes. Topics that could move a robot are
played only if named.
"""
