# SPDX-License-Identifier: Apache-2.0
"""The demo: starts verifier, simulator and robot nodes as processes, gives instructions, records, reports.

Words: a *child* is a process started here; the *director* is the ROS node that resets the simulator, publishes the
instruction and listens; a *recorder* turns what it hears into a trace. The demo never publishes a motion command
itself and never changes what a child said.
"""
