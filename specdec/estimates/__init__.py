# SPDX-License-Identifier: Apache-2.0
"""Estimates from live measurements: medians, means, forward-pass times by rows, predictions and their calibration."""
