# SPDX-License-Identifier: Apache-2.0
"""`specnav calibrate`: how a base responds to velocities, measured by small supervised motions.

Words: a *step* is one small motion, from rest to rest; its *record* is what was sent and what odometry showed of it; a
*search* is a step of rising speeds that ends when the base moves; a *repetition* is one round of the same steps. The
*line* is the way straight ahead of where the robot stood at first, and the *room* the part of it that may be used.
Nothing here may drive backwards, leave the room, or go on after a stop was heard.
"""
