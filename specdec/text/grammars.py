# SPDX-License-Identifier: Apache-2.0
"""Grammar files as people write them, to the one text that travels (see `GenerationOptions.grammar`)."""

from __future__ import annotations

import json
import re
from pathlib import Path

from specdec.errors import OptionsError
from specdec.options import MAX_GRAMMAR_BYTES
from specdec.settings_files import read_text

KINDS = (".lark", ".gbnf", ".regex", ".json")
"""By the end of a file's name: llguidance's dialect of Lark, llama.cpp's GBNF, a regular expression, a JSON schema."""


def read_grammar(path: Path) -> str:
    """A grammar file as Lark. Raises OptionsError for what cannot be read or is not a grammar of its kind; whether a
    model can follow it shows when it is compiled.
    """
    if path.suffix not in KINDS:
        raise OptionsError(f"the name of a grammar says how it is written: let {path} end in {', '.join(KINDS)}")
    try:
        text = read_text(path, MAX_GRAMMAR_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OptionsError(f"the grammar {path} cannot be read: {reason}") from error
    try:
        return to_lark(text, path.suffix)
    except ValueError as error:
        raise OptionsError(f"the grammar {path} is not as its name says: {str(error).splitlines()[0]:.200}") from error


def to_lark(text: str, kind: str) -> str:
    """kind: one of KINDS. Raises ValueError where the text is not of that kind, as far as that shows at once."""
    if kind == ".gbnf":
        from llguidance import gbnf_to_lark

        try:
            lark: str = gbnf_to_lark.gbnf_to_lark(text)
        except Exception as error:  # the library raises what it likes
            raise ValueError(str(error) or type(error).__name__) from error
        return lark
    if kind == ".regex":
        expression = text.strip().replace("\n", "\\n")
        if not expression:
            raise ValueError("it is empty")
        return f"start: /{_slashes_escaped(expression)}/"
    if kind == ".json":
        schema = json.loads(text)
        if not isinstance(schema, dict):
            raise ValueError("a JSON schema is an object")
        schema.setdefault("x-guidance", {"whitespace_flexible": False})  # blanks are not information
        return "start: %json " + json.dumps(schema)
    return text


def _slashes_escaped(expression: str) -> str:
    """As it stands between slashes; what a backslash escapes stays as it is."""
    return re.sub(r"\\.|/", lambda found: "\\/" if found[0] == "/" else found[0], expression, flags=re.DOTALL)
