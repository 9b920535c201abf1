# SPDX-License-Identifier: Apache-2.0
"""Bags: reads a robot's decisions from rosbag2 recordings, and scores decisions that are made again.

Terms: a *bag* is a folder or a `.mcap`/`.db3` file. A *frame* is one camera message in it, identified by its header
stamp. A *reference* is the action that was recorded or labelled for a frame. A *decision* is a method's answer for a
frame. The caller passes the names of actions. This package reads bags with `rosbags` and knows neither ROS nor models.
"""
