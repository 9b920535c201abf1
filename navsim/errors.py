# SPDX-License-Identifier: Apache-2.0
"""The one exception family of the simulator: a message says what was wrong and what to do."""

from __future__ import annotations


class NavsimError(Exception):
    """Base of every error the simulator raises for its user."""


class BadRequest(NavsimError):
    """An argument or a message from outside is not usable as it is."""


class NoDisplay(NavsimError):
    """No way to render without a screen was found on this machine."""


class RoomError(NavsimError):
    """A room could not be furnished or does not fit the compiled world."""
