# SPDX-License-Identifier: Apache-2.0
"""`specnav replay`: a bag's camera frames are decided again, by the robot's own prompt, parser and decoder, and scored.

No ROS is needed: bags are read by `specnav.bags`, which also keeps the scores; here models and processes are run.
"""
