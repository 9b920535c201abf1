# SPDX-License-Identifier: Apache-2.0
"""Bags: what a rosbag2 recording holds of a robot's decisions, and how decisions made again are scored.

Words: a *bag* is a folder or a bare `.mcap`/`.db3` file; a *frame* is one camera message in it, known by its header
stamp; a *reference* is the action that was recorded or labelled for a frame; a *decision* is what a method said to it.
This room is told the action language by its caller (names of actions), reads bags with `rosbags`, and knows no
ROS and no models.
"""
