"""Drafts that come in parts: the answer is the target's own, whatever leaves when, and whatever becomes of the parts.

The plan is replaced by a coin here, so that every division into parts comes up, good or bad.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from specdec.drafting.uploads import UploadPlan
from specdec.edge.stats import AnswerStats
from specdec.errors import OptionsError
from specdec.estimates.uplink import Uplink
from specdec.link.wire import DraftUp, PartUp, SampledUp
from specdec.methods import get_method
from specdec.options import GenerationOptions
from tests.helpers.table_models import PROMPT
from tests.specdec import checks
from tests.specdec.checks import SAMPLED, UNLIKE, answer, answer_alone, greedy_reference
from tests.specdec.wired import WiredLink

pytestmark = pytest.mark.slow

NOISY = ["sd+leave:plan", "pipesd", "sd+leave:plan+overlap:stream", "hsl+leave:plan+overlap:continue"]
SAMPLING = [
    "dsd+leave:plan",
    "dssd+leave:plan",
    "dssd-thin+leave:plan+overlap:stream",
    "dsd+leave:plan+overlap:continue",
    "pipesd+payload:rows",
]


@pytest.fixture(autouse=True)
def coin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts leave at random."""
    generator = random.Random(7)
    monkeypatch.setattr(Uplink, "token_s", 1.0)
    monkeypatch.setattr(
        UploadPlan, "due", lambda self, drafted, *about: drafted if generator.random() < 0.6 else 0
    )


def planned(
    method: str, options: GenerationOptions, **link: object
) -> tuple[list[int], AnswerStats, WiredLink]:
    wired = WiredLink(UNLIKE.target, UNLIKE.draft, parts=True, **link)  # type: ignore[arg-type]
    ids, cost = answer(method, options, gamma=6, link=wired)
    return ids, cost, wired


@pytest.mark.parametrize("method", [*NOISY, *SAMPLING])
def test_a_greedy_answer_is_the_targets(method: str) -> None:
    seen = 0
    for seed in range(12):
        for cuts in ((), (2, 5)):
            ids, cost, wired = planned(method, GenerationOptions(24), slowness=0.4, seed=seed, cuts=cuts)
            assert ids == greedy_reference(UNLIKE.target, PROMPT, 24)
            assert bool(cost.resumes) == bool(cuts)
            seen += wired.parts_seen
    assert seen > 20


@pytest.mark.parametrize("method", NOISY)
def test_a_sampled_answer_is_the_targets_for_its_seed(method: str) -> None:
    for seed in range(20):
        options = replace(SAMPLED, seed=seed, max_new_tokens=12)
        ids, _, _ = planned(method, options, slowness=0.4, seed=seed, cuts=(3,) if seed % 2 else ())
        assert ids == answer_alone(options)


def test_the_verifier_judges_what_would_have_come_whole() -> None:
    """So everything that is known of whole drafts holds for parts."""
    parts = drafts = 0
    for method in ("sd", "dsd", "dssd", "dssd-thin"):
        for seed in range(8):
            options = replace(SAMPLED, seed=seed, max_new_tokens=20)
            whole = WiredLink(UNLIKE.target, UNLIKE.draft)
            wanted, _ = answer(method, options, gamma=6, link=whole)
            ids, _, wired = planned(f"{method}+leave:plan", options)
            assert ids == wanted
            parts, drafts = parts + wired.parts_seen, drafts + len(wired.whole)
            judged = [told(one) for one in wired.whole]
            assert judged == [told(one) for one in whole.whole]
    assert parts > 2 * drafts > 100


def told(message: DraftUp | SampledUp) -> list[object]:
    """What a draft says."""
    return [getattr(message, name) for name in message.__struct_fields__ if name != "round"]


# Where the token is recovered in the cloud, and from parts of a row: the others' drafts differ from theirs in nothing.
@pytest.mark.parametrize("method", [SAMPLING[0], SAMPLING[2]])
def test_rejection_sampling_is_distributed_as_the_target(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_parts(*given: object, **more: object) -> WiredLink:
        return WiredLink(*given, parts=True, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(checks, "WiredLink", with_parts)
    checks.check_distribution(method, cuts=(2, 4))


class Faults:
    """What becomes of the parts: now and then one is lost, comes twice, or changes places with the next one."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._random = kind, random.Random(seed)
        self._held: list[PartUp] = []
        self.done = 0

    def __call__(self, part: PartUp) -> list[PartUp]:
        if self._held:
            held, self._held = self._held, []
            return [part, *held]
        if self.done >= 3 or self._random.random() < 0.6:
            return [part]
        if self._kind != "twice" and not part.more:
            return [part]
        self.done += 1
        if self._kind == "swapped":
            self._held = [part]
            return []
        return [part, part] if self._kind == "twice" else []


@pytest.mark.parametrize("kind", ["lost", "twice", "swapped"])
@pytest.mark.parametrize("method", ["sd+leave:plan", "pipesd", "dsd+leave:plan"])
def test_parts_that_are_lost_or_come_twice_or_out_of_order_change_no_answer(method: str, kind: str) -> None:
    broken = repeated = done = 0
    for seed in range(12):
        greedy = seed % 2 == 0
        options = GenerationOptions(20) if greedy else replace(SAMPLED, seed=seed, max_new_tokens=20)
        faults = Faults(kind, seed)
        ids, cost, wired = planned(method, options, seed=seed, meddle=faults)
        if greedy:
            assert ids == greedy_reference(UNLIKE.target, PROMPT, 20)
        elif not method.startswith(
            "dsd"
        ):  # with rejection sampling an answer that is opened again is another draw
            assert ids == answer_alone(options)
        assert cost.resumes == wired.broken
        broken, repeated, done = broken + wired.broken, repeated + wired.repeated, done + faults.done
    assert done > 5
    assert (repeated if kind == "twice" else broken) > 3


@pytest.mark.parametrize("method", [*NOISY, *SAMPLING])
def test_an_older_verifier_gets_whole_drafts(method: str) -> None:
    wired = WiredLink(UNLIKE.target, UNLIKE.draft, slowness=0.3)
    ids, _ = answer(method, GenerationOptions(24), gamma=6, link=wired)
    assert ids == greedy_reference(UNLIKE.target, PROMPT, 24)
    assert wired.whole and not wired.parts_seen


@pytest.mark.parametrize(
    "method", ["sd+tree:8x4+leave:plan", "fsd+leave:plan", "ngram+leave:plan", "sd+drafter:both+leave:plan"]
)
def test_what_does_not_draft_chains_with_a_model_has_no_plan(method: str) -> None:
    with pytest.raises(OptionsError, match=r"leaves? whole|whole drafts|leave:plan"):
        get_method(method)
