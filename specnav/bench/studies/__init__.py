# SPDX-License-Identifier: Apache-2.0
"""Ablation studies: each varies one thing, keeps everything else, and compares our figures with the papers'.

A *study* is data: the question it answers, its *settings* (each an ordinary bench run in its own folder), and a pure
function from their measurements to *findings* (charts, tables). This package starts no process and draws nothing.
Figures of papers come from papers.yaml only.
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
"""All studies that consist of bench runs with one draft; the others must be named alone."""


def study_named(name: str) -> Study:
    """The study of this name. Raises EvaluationError, which lists the names."""
    if name not in STUDIES:
        raise EvaluationError(
            f"study {name!r} is unknown; choose {', '.join(STUDIES)}, several separated by commas, or {ALL}"
        )
    return STUDIES[name]


def study_names(given: str) -> list[str]:
    """The named studies. Raises EvaluationError, also if one that does not consist of bench runs is not alone."""
    if given.strip() == ALL:
        return [name for name, study in STUDIES.items() if study.kind == "runs"]
    names = list(parts(given))
    for name in names or [given]:
        study_named(name)
    alone = [name for name in names if STUDIES[name].kind != "runs"]
    if alone and len(names) > 1:
        raise EvaluationError(
            f"study {alone[0]} must be named alone: --resume --out DIR adds it to the page of the others"
        )
    if len(set(names)) < len(names):
        raise EvaluationError(f"{given} names a study twice: give each once")
    return names
