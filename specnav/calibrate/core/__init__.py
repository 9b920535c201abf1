# SPDX-License-Identifier: Apache-2.0
"""The calibration itself, without ROS: steps, measurements, faults, and the resulting parameters."""
