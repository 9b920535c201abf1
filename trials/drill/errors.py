"""The one exception of the drill: one line that says what was wrong."""

from harness.errors import UsageError


class DrillError(UsageError):
    """A drill cannot start or go on."""
