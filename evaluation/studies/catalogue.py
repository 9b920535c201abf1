"""The studies by name."""

from __future__ import annotations

from evaluation.errors import EvaluationError
from evaluation.studies import exits, gamma, link, queues, threads
from evaluation.studies.plan import Study

STUDIES: dict[str, Study] = {
    study.name: study for study in (threads.STUDY, gamma.STUDY, queues.STUDY, exits.STUDY, link.STUDY)
}
ALL = "all"


def study_named(name: str) -> Study:
    """A study. Raises EvaluationError with the names there are."""
    if name not in STUDIES:
        raise EvaluationError(
            f"study {name!r} is unknown; choose {', '.join(STUDIES)}, several by commas, or {ALL}"
        )
    return STUDIES[name]


def study_names(given: str) -> list[str]:
    """The studies that `--study` names. Raises EvaluationError."""
    if given.strip() == ALL:
        return list(STUDIES)
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names or [given]:
        study_named(name)
    if len(set(names)) < len(names):
        raise EvaluationError(f"--study {given} names a study twice; give each once")
    return names
