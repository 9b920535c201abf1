# SPDX-License-Identifier: Apache-2.0
"""Requests: their bodies, and what they ask for."""
