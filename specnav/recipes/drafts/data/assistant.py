# SPDX-License-Identifier: Apache-2.0
"""Composes random requests to a chat assistant, of the kinds in speculative-decoding benchmarks: writing, roleplay,
reasoning, arithmetic, code, facts, lists, rewriting, and texts to summarise.

A draft for a published instruct model learns from the model's answers to them. No request comes from a benchmark, so
the public files remain valid for measuring. Words and forms are in assistant.yaml.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

_DATA: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
FORMS: dict[str, list[str]] = _DATA["forms"]
"""Forms of requests by kind."""
TWICE = frozenset({"person", "place", "thing", "animal", "subject", "role", "goods", "song"})
"""Words of which a form may use two."""
HEADS = ("", "from typing import List, Optional\n\n\n", "from typing import List\n\n", "import math\n\n")
SHARES = {"writing": 0.24, "facts": 0.16, "instructions": 0.18, "arithmetic": 0.16, "code": 0.14, "articles": 0.12}


def assistant_request(rng: random.Random, articles: Sequence[str] = ()) -> tuple[str, str]:
    """(kind, request), determined by the state of `rng`. articles: texts to summarise; otherwise composed."""
    kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
    return kind, request_of(kind, rng, articles)


def request_of(kind: str, rng: random.Random, articles: Sequence[str] = ()) -> str:
    """A request of one kind of SHARES."""
    if kind == "code":
        return _code(rng)
    if kind == "articles":
        composed = (fill(rng.choice(FORMS["instructions"]), rng) for _ in range(4))
        return f"Summarize: {rng.choice(articles) if articles else ' '.join(composed)}"
    asked = fill(rng.choice(FORMS[kind]), rng)
    return asked[0].lower() + asked[1:] if kind == "facts" and rng.random() < 0.2 else asked


def report_request(rng: random.Random) -> str:
    """A request for an article, which is summarised later."""
    return fill(rng.choice(_DATA["reports"]), rng)


def fill(form: str, rng: random.Random) -> str:
    """A form with its placeholders filled in."""
    words: dict[str, Any] = {}
    for name, choices in _DATA["words"].items():
        words[name] = rng.choice(choices)
        if name in TWICE:
            words[f"{name}2"] = rng.choice(choices)
    words["word"] = words["word"].replace(" ", "")
    words["cmpw"] = f"{words['cmp']} than"
    number = rng.randint
    words |= {
        "a": number(2, 9), "b": number(3, 30), "c": number(20, 200), "c5": number(2, 6), "c80": number(60, 80),
        "c100": 50 * number(1, 4), "b10": 5 * number(4, 14), "b20": number(15, 40), "p": 10 * number(1, 7),
        "year": number(1900, 2020),
    }  # fmt: skip
    return form.format(**words)


def _code(rng: random.Random) -> str:
    """The beginning of a Python function, to be completed."""
    function = rng.choice(_DATA["functions"])
    quote = rng.choice(('"""', "'''"))
    example_form: Callable[[str], str] = rng.choice(
        (lambda one: f"\n    >>> {one}", lambda one: f"\n\n    Example:\n    {one}", lambda one: "")
    )
    says = f"{rng.choice(('', ' ', chr(10) + '    '))}{function['says']}{example_form(function['example'])}"
    body = f"def {function['head']}:\n    {quote}{says}\n    {quote}\n"
    return "Complete the code I provided.\n" + rng.choice(("", "\n")) + rng.choice(HEADS) + fill(body, rng)
