# SPDX-License-Identifier: Apache-2.0
"""`specnav drill`: faults injected into the running graph, one at a time, and what they did to the robot, measured.

A *drill* is a fault, the phase of the robot's work in which it strikes, and what must then happen (`catalogue`). The
processes are the real ones; what is simulated is the robot's base, its room and its camera. Nothing in here changes
what the nodes do: faults come in through topics, signals, sockets and the simulator's own parameters.
"""
