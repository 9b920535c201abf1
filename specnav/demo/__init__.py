# SPDX-License-Identifier: Apache-2.0
"""The demo: starts verifier, simulator and robot nodes as processes, gives instructions, records and reports.

Terms: a *child* is a process started here. The *director* is the ROS node that resets the simulator, publishes the
instruction and listens. A *recorder* turns what the director hears into a trace. The demo itself never publishes a
motion command, and never alters a child's messages.
"""
