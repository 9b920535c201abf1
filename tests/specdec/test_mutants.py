"""Planted faults: each is patched into the package, and the check that the other tests rest on must notice it.

Noticed means that the check fails, or that the package itself refuses to go on (SpecdecError). Without the fault the
same checks pass: test_distributions, test_adversarial and test_auto run them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
import torch

from cloud_verifier.engine import tasks
from specdec.drafting import ROOT, Draft, chain, tree_drafter
from specdec.edge import flight
from specdec.edge import session as edge_session
from specdec.errors import SpecdecError
from specdec.link.wire import HintDown, VerdictDown
from specdec.models import session
from specdec.models.plans import planned
from specdec.sampling import choice, noise, processors, recovery, rejection
from specdec.sampling.uniform import Purpose
from specdec.verifying import Judgement, sampled, verifier
from tests.helpers.servers import Pair
from tests.helpers.table_models import table_pair
from tests.specdec.checks import (
    EARLY,
    SAMPLED,
    answer_alone,
    check_distribution,
    check_greedy,
    check_real_caches,
    check_seed_decides,
)

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch
CUT_SUPPORT = replace(SAMPLED, temperature=2.0, top_k=3, top_p=0.9)
WARPED = replace(SAMPLED, temperature=0.6, top_k=2)
ALIKE = table_pair(vocab=5, unlikeness=0.4)
"""Most drafts are accepted: what happens after the last accepted token is tried often."""


@dataclass(frozen=True)
class Mutant:
    """A fault, and the check that must notice it. check takes the pair of real models, for those that need one."""

    name: str
    plant: Callable[[Patch], None]
    check: Callable[[Pair], object]


def sampled_by(method: str, **settings: Any) -> Callable[[Pair], object]:
    return lambda pair: check_distribution(method, looks=EARLY, **settings)


def greedy_by(method: str, **settings: Any) -> Callable[[Pair], object]:
    return lambda pair: check_greedy(method, **settings)


def wrap(patch: Patch, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace owner.name by a function that is given the original first."""
    original = getattr(owner, name)
    if isinstance(original, planned):
        patch.setattr(owner, name, planned(lambda *given, **named: around(original.method, *given, **named)))
    else:
        patch.setattr(owner, name, lambda *given, **named: around(original, *given, **named))


# Rejection sampling


def inverted_ratio(patch: Patch) -> None:
    patch.setattr(rejection, "accepts", lambda p, q: min(1.0, q / p) if p > 0 else 1.0)


def cloud_recovers_from_p(patch: Patch) -> None:
    patch.setattr(sampled, "recovery_distribution", lambda p, q: p.double())


def edge_recovers_from_p(patch: Patch) -> None:
    patch.setattr(recovery, "recovery_distribution", lambda p, q: p.double())


def listing_without_residual(patch: Patch) -> None:
    def mutant(original: Callable[..., Any], tokens: Any, p: Any, tail: float, q: torch.Tensor) -> Any:
        return original(tokens, p, tail, torch.zeros_like(q))

    wrap(patch, recovery, "make_listing", mutant)


def samples_always_stay(patch: Patch) -> None:
    patch.setattr(recovery, "recover_from_samples", lambda listing, samples, p, q, uniforms: samples[0])


def kept_after_a_rejection(patch: Patch) -> None:
    wrap(
        patch,
        sampled,
        "count_accepted",
        lambda original, p, q, numbers: min(len(p), original(p, q, numbers) + 1),
    )


def bonus_from_the_wrong_row(patch: Patch) -> None:
    def mutant(original: Callable[..., torch.Tensor], self: Any, rows: torch.Tensor) -> torch.Tensor:
        p = original(self, rows)
        return torch.cat([p[:-1], p[-2:-1]]) if p.shape[0] > 1 else p

    wrap(patch, sampled.SampledVerifier, "_probabilities", mutant)


def raw_q_told(patch: Patch) -> None:
    def mutant(original: Callable[..., int], self: Any, row: torch.Tensor, position: int) -> int:
        token = original(self, row, position)
        if position in self._rows:
            self._rows[position] = torch.softmax(row[0], dim=-1)
        return token

    wrap(patch, chain.ChainDrafter, "_pick", mutant)


def one_number_for_two_decisions(patch: Patch) -> None:
    def mutant(original: Callable[..., Any], seed: int, purpose: Purpose, *rest: int) -> Any:
        return original(seed, Purpose.DRAFT if purpose is Purpose.ACCEPT else purpose, *rest)

    wrap(patch, sampled, "uniform", mutant)


# What both sides agree on


def inverted_top_p(patch: Patch) -> None:
    patch.setattr(processors, "keep_top_p", lambda scores, p: -_keep_top_p(-scores, p))


_keep_top_p = processors.keep_top_p


def noise_without_position(patch: Patch) -> None:
    wrap(patch, noise, "gumbel_noise", lambda original, seed, at, ids: original(seed, torch.zeros_like(at), ids))


# Judging drafts by ids


def judged_too_kindly(patch: Patch) -> None:
    def mutant(original: Callable[..., Judgement], draft: Draft, picks: Sequence[int], eos: Any) -> Judgement:
        right = original(draft, picks, eos)
        return Judgement(tuple(range(min(len(draft.ids), len(right.path) + 1))), right.token)

    wrap(patch, verifier, "judge", mutant)


def edge_keeps_one_more(patch: Patch) -> None:
    wrap(
        patch,
        edge_session,
        "path_to",
        lambda original, draft, last: original(draft, min(len(draft.ids), last + 1)),
    )


def pick_of_the_wrong_row(patch: Patch) -> None:
    def mutant(original: Callable[..., list[int]], self: Any, logits: torch.Tensor, first: int) -> list[int]:
        picks = original(self, logits, first)
        return [*picks[:-1], picks[-2]] if len(picks) > 1 else picks

    wrap(patch, choice.Chooser, "choose", mutant)


def child_before_parent(patch: Patch) -> None:
    def mutant(original: Callable[..., Any], *given: Any) -> Any:
        draft, guess = original(*given)
        top = len(draft.ids) - 1
        parents = tuple(ROOT if parent == ROOT else top - parent for parent in reversed(draft.parents))
        return Draft(draft.base, draft.ids[::-1], parents), guess

    wrap(patch, tree_drafter, "prune", mutant)


def child_before_parent_unchecked(patch: Patch) -> None:
    child_before_parent(patch)
    patch.setattr(verifier, "check_draft", lambda draft, vocab_size: None)


def end_inside_a_draft_overlooked(patch: Patch) -> None:
    """By both sides; each alone makes good for the other."""
    wrap(patch, verifier, "judge", lambda original, draft, picks, eos: original(draft, picks, frozenset()))

    def mutant(original: Callable[..., None], self: Any, *given: Any) -> None:
        original(self, *given)
        self._verified.eos_ids = frozenset()

    wrap(patch, edge_session.EdgeSession, "open", mutant)


# Caches


def cache_off_by_one(patch: Patch) -> None:
    def mutant(original: Callable[..., None], self: Any, kept: int) -> None:
        original(self, min(self.length, kept + 1))

    wrap(patch, session.ModelSession, "rollback", mutant)


def token_fed_twice(patch: Patch) -> None:
    wrap(
        patch,
        session.SessionCursor,
        "_sync",
        lambda original, self, *given: max(0, original(self, *given) - 1),
    )


def branch_left_in_the_cache(patch: Patch) -> None:
    """The path is kept in number, but the rows of the cache stay those of the first nodes."""
    wrap(
        patch,
        session.ModelSession,
        "keep_path",
        lambda original, self, nodes, below=(): (
            original(self, nodes, below) if not nodes or below else _keep_first(self, len(nodes))
        ),
    )


def _keep_first(self: Any, count: int) -> None:
    self._length += count
    self._clear_tree()


# Lengths, rounds and sessions


def tokens_counted_in_rounds(patch: Patch) -> None:
    def mutant(original: Callable[..., None], self: Any, opening: Any) -> None:
        options = replace(opening.options, max_new_tokens=4 * opening.options.max_new_tokens)
        original(self, replace(opening, options=options))

    wrap(patch, edge_session.EdgeSession, "open", mutant)


def last_round_overshoots(patch: Patch) -> None:
    wrap(patch, verifier, "answer_limit", lambda original, *given: original(*given) + 2)

    def mutant(original: Callable[..., Any], self: Any, *given: Any) -> Any:
        self.limit += 2
        merged = original(self, *given)
        self.limit -= 2
        return merged

    wrap(patch, edge_session.VerifiedAnswer, "merge", mutant)


def stale_verdict_accepted(patch: Patch) -> None:
    patch.setattr(flight.Flight, "judged", lambda self, round_: self.oldest)


def foreign_verdict_accepted(patch: Patch) -> None:
    def mutant(original: Callable[..., Any], self: Any, message: Any, *rest: Any) -> Any:
        if hasattr(message, "session"):
            message = msgspec.structs.replace(message, session=self._number)
        return original(self, message, *rest)

    wrap(patch, edge_session.EdgeSession, "_take", mutant)


def old_epoch_verified(patch: Patch) -> None:
    def mutant(original: Callable[..., None], self: Any, task: Any) -> None:
        if isinstance(task, tasks.SessionTask) and hasattr(task.message, "epoch"):
            task = replace(task, message=msgspec.structs.replace(task.message, epoch=10**6))
        original(self, task)

    wrap(patch, tasks.SessionQueue, "put", mutant)


def history_not_replayed(patch: Patch) -> None:
    def mutant(original: Callable[..., Any], self: Any, prompt: Any, history: Any = (), *rest: Any) -> Any:
        yield from original(self, prompt, (), *rest)
        self.answer = list(history)
        self._cursor._fed = list(history[:-1])  # as if they had been fed

    wrap(patch, verifier.Verifier, "prefill", mutant)


def hint_taken_for_a_verdict(patch: Patch) -> None:
    def mutant(original: Callable[..., Any], self: Any, message: Any, size: int, now: float) -> Any:
        if isinstance(message, HintDown):
            message = VerdictDown(message.session, message.round, message.last, message.token, 1, 0)
        return original(self, message, size, now)

    wrap(patch, edge_session.EdgeSession, "_take", mutant)


MUTANTS = [
    Mutant("ratio inverted", inverted_ratio, sampled_by("dssd")),
    Mutant("residual omitted in the cloud", cloud_recovers_from_p, sampled_by("dsd")),
    Mutant("residual omitted on the edge", edge_recovers_from_p, sampled_by("dssd")),
    Mutant(
        "residual omitted in a listing", listing_without_residual, sampled_by("picospec+resample:sparse:2")
    ),
    Mutant("samples always stay", samples_always_stay, sampled_by("dssd-thin+resample:samples:1")),
    Mutant("tokens kept after a rejection", kept_after_a_rejection, sampled_by("dssd")),
    Mutant("tokens kept after a rejection, in the cloud", judged_too_kindly, greedy_by("sd")),
    Mutant("tokens kept after a rejection, on the edge", edge_keeps_one_more, greedy_by("sd")),
    Mutant("bonus from the wrong row", bonus_from_the_wrong_row, sampled_by("dssd", pair=ALIKE)),
    Mutant("bonus of the wrong row, by ids", pick_of_the_wrong_row, greedy_by("sd")),
    Mutant("raw q told", raw_q_told, sampled_by("dssd", options=WARPED, samples=300)),
    Mutant("one number decides twice", one_number_for_two_decisions, sampled_by("dsd", samples=400)),
    Mutant("top-p inverted", inverted_top_p, sampled_by("sd", options=CUT_SUPPORT)),
    Mutant("noise without position", noise_without_position, sampled_by("sd")),
    Mutant("tree child before its parent", child_before_parent, greedy_by("specedge")),
    Mutant("tree child before its parent, unchecked", child_before_parent_unchecked, greedy_by("specedge")),
    Mutant("an end inside a draft overlooked", end_inside_a_draft_overlooked, greedy_by("sd")),
    Mutant("cache off by one after a rollback", cache_off_by_one, lambda pair: check_real_caches("sd", pair)),
    Mutant("token fed twice after a rollback", token_fed_twice, greedy_by("sd")),
    Mutant("a hint taken for a verdict", hint_taken_for_a_verdict, greedy_by("fsd")),
    Mutant(
        "wrong branch in the cache",
        branch_left_in_the_cache,
        lambda pair: check_real_caches("specedge", pair),
    ),
    Mutant("tokens counted in rounds", tokens_counted_in_rounds, greedy_by("sd")),
    Mutant("last round overshoots", last_round_overshoots, greedy_by("sd")),
    Mutant("stale verdict accepted", stale_verdict_accepted, greedy_by("sd+overlap:stream", stale=True)),
    Mutant("verdict of another session accepted", foreign_verdict_accepted, greedy_by("sd", stale=True)),
    Mutant(
        "draft of an old epoch verified", old_epoch_verified, sampled_by("dssd+overlap:stream+leave:tokens")
    ),
    Mutant("draft of an old epoch verified, by ids", old_epoch_verified, greedy_by("sd+overlap:stream")),
    Mutant(
        "history not replayed",
        history_not_replayed,
        lambda pair: check_seed_decides("sd", cuts=(2,), seeds=10),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_fault_is_noticed(mutant: Mutant, text_pair: Pair, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        mutant.plant(patch)
        with pytest.raises((AssertionError, SpecdecError)):
            mutant.check(text_pair)
    answer_alone.cache_clear()  # it may have been worked out with the fault


def test_the_pairs_of_the_mutants_alone_are_no_reason_to_complain() -> None:
    """The checks whose settings no other test has."""
    check_distribution("dssd", pair=ALIKE)
    check_distribution("dssd", options=WARPED, samples=300)
