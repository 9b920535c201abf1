"""The one exception of the trials: one line that says what was wrong."""

from specnav.errors import UsageError


class TrialError(UsageError):
    """A trial cannot start or go on."""
