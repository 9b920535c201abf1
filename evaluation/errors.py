"""The one exception of the evaluation room: every message says what was wrong and what to do, in one line."""


class EvaluationError(Exception):
    """A run folder, results file or trace that cannot be read, checked or shown."""
