"""The emulated acceptance of a run: found on its questions, with the target's weights as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdec.models import LoadedModel
from specdec.sampling.disturbed import Disturbance
from specnav.bench.acceptance.calibrated import calibrate
from specnav.bench.acceptance.wanted import read_acceptance
from specnav.bench.config import BenchConfig, generation_options
from specnav.bench.core.records import AcceptanceRecord
from specnav.bench.questions import Question


def find_acceptance(
    config: BenchConfig, target: LoadedModel, questions: Sequence[Question], say: Callable[[str], None]
) -> AcceptanceRecord:
    """How strongly the target must be disturbed for what the config asks; it is not paced meanwhile.

    Raises EvaluationError for an acceptance that cannot be reached.
    """
    wanted = read_acceptance(config.acceptance, config.gamma)
    pacer, target.runner.pacer = target.runner.pacer, None
    try:
        found = calibrate(target, questions, generation_options(config), wanted, config.seed, say)
    finally:
        target.runner.pacer = pacer
    say(found.line)
    return found


def disturbance_of(found: AcceptanceRecord | None) -> Disturbance | None:
    """What the draft is disturbed by; None where acceptance is not emulated."""
    return None if found is None else Disturbance(found.strength, found.seed)
