# SPDX-License-Identifier: Apache-2.0
"""`specnav drill`: injects faults into the running graph, one at a time, and measures the robot's reaction.

A *drill* is a fault, the phase of the robot's work in which it is injected, and what must then happen (`catalogue`).
The processes are the real ones; the robot's base, its room and its camera are simulated. Nothing here changes how the
nodes work: faults come through topics, signals, sockets and the simulator's own parameters.
"""
