"""The one exception of the demo: every message says what was wrong and what to do, in one line."""


class DemoError(Exception):
    """The demo cannot start or go on."""


class ChildFailed(DemoError):
    """A process of the demo ended or never became ready; the message names its log file."""
