"""Hints: what early exits expect of a verdict, and the vocabulary they are asked about."""
