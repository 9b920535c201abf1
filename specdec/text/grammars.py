# SPDX-License-Identifier: Apache-2.0
"""Converts grammar files of several kinds to the one form that is sent (see `GenerationOptions.grammar`)."""

from __future__ import annotations

import json
import re
from pathlib import Path

from specdec.errors import OptionsError
from specdec.options import MAX_GRAMMAR_BYTES
from specdec.settings_files import read_text

KINDS = (".lark", ".gbnf", ".regex", ".json")
"""Suffixes of grammar files: llguidance's dialect of Lark, llama.cpp's GBNF, a regular expression, a JSON schema."""


def read_grammar(path: Path) -> str:
    """Read a grammar file as Lark. Raises OptionsError if it cannot be read or is not of its kind. Whether a model can
    follow it is found at compilation.
    """
    if path.suffix not in KINDS:
        raise OptionsError(f"the suffix of a grammar file names its kind: let {path} end in {', '.join(KINDS)}")
    try:
        text = read_text(path, MAX_GRAMMAR_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OptionsError(f"the grammar {path} cannot be read: {reason}") from error
    try:
        return to_lark(text, path.suffix)
    except ValueError as error:
        raise OptionsError(f"the grammar {path} is invalid: {str(error).splitlines()[0]:.200}") from error


def to_lark(text: str, kind: str) -> str:
    """Convert a grammar to Lark. kind: one of KINDS. Raises ValueError for text that is evidently not of that kind."""
    if kind == ".gbnf":
        from llguidance import gbnf_to_lark

        try:
            lark: str = gbnf_to_lark.gbnf_to_lark(text)
        except Exception as error:  # the library raises various errors
            raise ValueError(str(error) or type(error).__name__) from error
        return lark
    if kind == ".regex":
        expression = text.strip().replace("\n", "\\n")
        if not expression:
            raise ValueError("it is empty")
        return f"start: /{_slashes_escaped(expression)}/"
    if kind == ".json":
        try:
            schema = json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(schema, dict):
            raise ValueError("a JSON schema must be an object")
        schema.setdefault("x-guidance", {"whitespace_flexible": False})  # blanks carry no information
        return "start: %json " + json.dumps(schema)
    return text


def _slashes_escaped(expression: str) -> str:
    """Escape an expression for use between slashes; escaped characters are left unchanged."""
    return re.sub(r"\\.|/", lambda found: "\\/" if found[0] == "/" else found[0], expression, flags=re.DOTALL)
