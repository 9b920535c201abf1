# SPDX-License-Identifier: Apache-2.0
"""Estimates from what is measured as an answer goes on: medians, means, forwards by rows, promises and what came."""
