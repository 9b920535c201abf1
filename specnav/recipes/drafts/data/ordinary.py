# SPDX-License-Identifier: Apache-2.0
"""Composes random ordinary requests, which have nothing to do with this project's own data.

A small model answers all of them in its own style. A draft that has never seen such prompts predicts these answers
worst. Words and forms are in ordinary.yaml.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import yaml

_DATA: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
SHARE_OF_ARTICLES = 0.15


def ordinary_request(rng: random.Random) -> str:
    """One request, determined by the state of `rng`."""
    if rng.random() < SHARE_OF_ARTICLES:
        article = " ".join(_filled(rng.choice(_DATA["sentences"]), rng) for _ in range(rng.randint(2, 5)))
        return f"Summarise the following text: {article}"
    return _filled(rng.choice(_DATA["asked"]), rng)


def _filled(form: str, rng: random.Random) -> str:
    choices = _DATA["words"]
    words = {
        "thing": rng.choice(choices["thing"]), "other": rng.choice(choices["thing"]),
        "place": rng.choice(choices["place"]), "name": rng.choice(choices["name"]),
        "friend": rng.choice(choices["name"]), "subject": rng.choice(choices["subject"]),
        "goods": rng.choice(choices["goods"]),
        "a": rng.randint(2, 12), "b": rng.randint(2, 30), "c": rng.randint(13, 90), "d": rng.randint(20, 120),
        "year": rng.randint(1820, 2015),
    }  # fmt: skip
    who = rng.choice(_DATA["who"]).format(**words)
    return form.format(who=who, **words)
