# SPDX-License-Identifier: Apache-2.0
"""`specnav replay`: decides a bag's camera frames again with the robot's prompt, parser and decoder, and scores them.

No ROS is needed: `specnav.bags` reads bags and computes scores; this package runs models and processes.
"""
