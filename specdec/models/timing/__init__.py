# SPDX-License-Identifier: Apache-2.0
"""Durations of forward passes: measured by their rows, and extended artificially (pacing)."""
