# SPDX-License-Identifier: Apache-2.0
"""The simulator's exceptions; each message says what is wrong and what to do."""

from __future__ import annotations


class NavsimError(Exception):
    """Base class of the errors that the simulator raises for its users."""


class BadRequest(NavsimError):
    """An argument or an external message is invalid."""


class NoDisplay(NavsimError):
    """Off-screen rendering is not available on this machine."""


class RoomError(NavsimError):
    """A room could not be furnished or does not fit the compiled world."""
