# SPDX-License-Identifier: Apache-2.0
"""The simulated robot and its rooms: seeded rooms, a camera rendered by MuJoCo, a planar base, a ROS node.

Terms: a *room* holds *objects* (kind and colour, nameable) and *furniture* (never named); an *episode* is a room, a
start pose and an instruction. This package imports nothing else of this project and makes no decisions.
"""
