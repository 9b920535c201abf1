# SPDX-License-Identifier: Apache-2.0
"""The calibration itself, free of ROS: steps, what is measured of them, what ends them, which parameters follow."""
