# SPDX-License-Identifier: Apache-2.0
"""`specnav calibrate`: measures how a base responds to velocities, by small supervised motions.

Terms: a *step* is one small motion, from rest to rest. Its *record* is what was commanded and what odometry showed. A
*search* is a step of rising speeds that ends when the base moves. A *repetition* is one round of the same steps. The
*line* runs straight ahead from where the robot first stood, and the *room* is the part of it that may be used. The
robot must never drive backwards, leave the room, or go on after a stop was received.
"""
