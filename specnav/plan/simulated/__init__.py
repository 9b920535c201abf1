# SPDX-License-Identifier: Apache-2.0
"""Simulation of a fleet: robots, their links, a directory, and verifiers that serve them in shared forwards.

`simulate` runs one fleet; `search` uses it to find what a fleet needs. Nothing here is measured, and every result names
the source of its calibration. Times are milliseconds; needs no language model.
"""
