# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a fleet as a whole, in one line."""

from __future__ import annotations

from specnav.errors import HarnessError


class FleetError(HarnessError):
    """Ray, a directory or a fleet that is not as it is needed; says what to do."""
