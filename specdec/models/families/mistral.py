"""Mistral: every layer sees a window, or none does (from version 0.2 on)."""

from specdec.models.families.family import Family

MISTRAL = Family("mistral", window=lambda config, layer: config.sliding_window or 0)
