# SPDX-License-Identifier: Apache-2.0
"""`specnav play`: messages of a bag published again, byte for byte, at its own speed.

`choice` says what is played and `pace` when, both without ROS; `live` publishes. What could move a robot is played
only when it is named.
"""
