# SPDX-License-Identifier: Apache-2.0
"""Ablation studies: one thing is varied, everything else stays, and the paper's figures stand beside ours.

A *study* is data: the question it answers, its *settings* (each an ordinary bench run in a folder of its own), and a
pure function from what the settings measured to *findings* (charts, tables). Starts no process, draws
nothing; figures of papers come from papers.yaml only.
"""

from __future__ import annotations

from specdec.settings import parts
from specnav.bench.studies import (
    ablation,
    batch,
    clients,
    comm,
    cost,
    drafts,
    exits,
    gamma,
    link,
    payloads,
    queues,
    threads,
)  # fmt: skip
from specnav.bench.studies.plan import Study
from specnav.results.errors import EvaluationError

_MODULES = (threads, gamma, queues, exits, link, ablation, comm, batch, clients, drafts, payloads, cost)
STUDIES: dict[str, Study] = {one.STUDY.name: one.STUDY for one in _MODULES}
ALL = "all"
"""All that are made of bench runs with one draft; the others are named by themselves."""


def study_named(name: str) -> Study:
    """A study. Raises EvaluationError with the names there are."""
    if name not in STUDIES:
        raise EvaluationError(
            f"study {name!r} is unknown; choose {', '.join(STUDIES)}, several by commas, or {ALL}"
        )
    return STUDIES[name]


def study_names(given: str) -> list[str]:
    """The studies that are named; one that is not made of bench runs stands alone. Raises EvaluationError."""
    if given.strip() == ALL:
        return [name for name, study in STUDIES.items() if study.kind == "runs"]
    names = list(parts(given))
    for name in names or [given]:
        study_named(name)
    alone = [name for name in names if STUDIES[name].kind != "runs"]
    if alone and len(names) > 1:
        raise EvaluationError(
            f"study {alone[0]} is named by itself: --resume --out DIR puts it on the page of the others"
        )
    if len(set(names)) < len(names):
        raise EvaluationError(f"{given} names a study twice: give each once")
    return names
