"""Trials of the whole system: faults, long runs, pauses between motions, and a randomised monkey."""
