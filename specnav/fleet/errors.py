# SPDX-License-Identifier: Apache-2.0
"""Errors of a fleet as a whole, in one line."""

from __future__ import annotations

from specnav.errors import HarnessError


class FleetError(HarnessError):
    """Ray, the directory or the fleet is not in the needed state; the message says what to do."""
