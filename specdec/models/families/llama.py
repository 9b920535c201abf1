"""Llama 2 and 3, and what has their modules: the family that the others are told by."""

from specdec.models.families.family import Family

LLAMA = Family("llama")
