"""Sampling: processors against the library's, shared noise, and rejection sampling as a statistical test.

The chi-square tests compare with an independent float64 reference at a false-alarm rate of 1e-9, so any seed passes;
negative controls show that the usual faults would be caught.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import pytest
import scipy  # its parts are imported when they are first used
import torch
from torch import Tensor

from specdec.errors import OptionsError
from specdec.options import LEAST_TEMPERATURE, GenerationOptions
from specdec.sampling import Chooser, gumbel_noise, process_logits, rejection
from specdec.sampling.rejection import draw, recovery_distribution

pytestmark = pytest.mark.slow

FALSE_ALARM = 1e-9
SAMPLES = 12_000
EARLY = (2000, 4000, 8000)
"""After this many samples most planted faults are plain."""
VOCABULARY = 8
PINNED_NOISE = [0.17720649347, 0.748046177433, 0.153594154255]


def p_value(counts: np.ndarray, expected: np.ndarray, least: float = 0.0) -> float:
    """Chi-square test of observed counts against expected probabilities (float64).

    least: cells that expect fewer are taken together.
    """
    expected = expected / expected.sum() * counts.sum()
    rare = expected < least
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return float(scipy.stats.chisquare(counts, expected).pvalue)


def reference_softmax(logits: np.ndarray) -> np.ndarray:
    """Independent of torch, in float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


class TestProcessors:
    """Same distributions as the library's warpers, in the order `generate` applies them."""

    @pytest.mark.parametrize(
        "options",
        [
            GenerationOptions(temperature=0.7),
            GenerationOptions(temperature=1.0, top_k=5),
            GenerationOptions(temperature=1.5, top_p=0.6),
            GenerationOptions(temperature=1.0, top_p=0.01),
            GenerationOptions(temperature=1.0, min_p=0.2),
            GenerationOptions(temperature=0.9, top_k=20, top_p=0.9, min_p=0.05),
        ],
    )
    def test_equal_the_librarys(self, options: GenerationOptions) -> None:
        from transformers.generation import logits_process as library

        logits = torch.randn(50, 60, generator=torch.Generator().manual_seed(0)) * 3
        ids = torch.zeros(50, 1, dtype=torch.long)
        scores = library.TemperatureLogitsWarper(float(options.temperature))(ids, logits)
        if options.top_k:
            scores = library.TopKLogitsWarper(options.top_k)(ids, scores)
        if options.top_p < 1:
            scores = library.TopPLogitsWarper(options.top_p)(ids, scores)
        if options.min_p > 0:
            scores = library.MinPLogitsWarper(options.min_p)(ids, scores)
        expected = torch.softmax(scores, dim=-1)
        ours = process_logits(logits, options).exp()
        assert torch.equal(ours > 0, expected > 0)
        assert torch.allclose(ours, expected, atol=1e-6)

    def test_top_p_keeps_the_likely_ones(self) -> None:
        """Not the other way round."""
        kept = process_logits(
            torch.tensor([[4.0, 3.0, -2.0, -3.0]]), GenerationOptions(temperature=1.0, top_p=0.9)
        )
        assert torch.isfinite(kept).tolist() == [[True, True, False, False]]

    def test_options_out_of_range_are_refused_with_the_range(self) -> None:
        for settings in (
            {"max_new_tokens": 0},
            {"temperature": -1.0},
            {"temperature": float("nan")},
            {"top_p": 0.0},
            {"seed": -1},
            {"max_new_tokens": 2.5},
            {"temperature": True},
            {"temperature": 1e-300},
        ):
            with pytest.raises(OptionsError, match=r"^[a-z_]+ must be .* from .*, got"):
                GenerationOptions(**settings)  # type: ignore[arg-type]


    def test_the_least_temperature_leaves_a_distribution(self) -> None:
        options = GenerationOptions(temperature=LEAST_TEMPERATURE)
        rows = torch.tensor([[1e4, 99.0, -1e4], [3.0, 3.0, 2.0]])
        chances = process_logits(rows, options).exp()
        assert torch.allclose(chances, torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]))


class TestSharedNoise:
    """Noise that is a pure function of (seed, position, token)."""

    def test_is_the_same_for_any_subset_order_and_shape(self) -> None:
        tokens = torch.arange(1000)
        whole = gumbel_noise(7, torch.arange(5)[:, None], tokens[None])
        some = torch.tensor([999, 3, 500])
        assert torch.equal(gumbel_noise(7, torch.tensor([4]), some), whole[4, some])

    def test_does_not_change_between_releases(self) -> None:
        """Edges and clouds of different installs must agree: these numbers are part of the protocol."""
        noise = gumbel_noise(1, torch.tensor([0, 1, 1000]), torch.tensor([0, 151_000, 5]))
        assert noise.dtype == torch.float64
        assert [round(float(value), 12) for value in noise] == PINNED_NOISE

    def test_is_standard_gumbel_and_independent(self) -> None:
        noise = gumbel_noise(3, torch.arange(400)[:, None], torch.arange(500)[None]).numpy()
        assert scipy.stats.kstest(noise.ravel()[::7], scipy.stats.gumbel_r.cdf).pvalue > FALSE_ALARM
        for lag_axis in (0, 1):
            a, b = (noise[1:], noise[:-1]) if lag_axis == 0 else (noise[:, 1:], noise[:, :-1])
            assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.015
        other = gumbel_noise(4, torch.arange(400)[:, None], torch.arange(500)[None]).numpy()
        assert abs(np.corrcoef(noise.ravel(), other.ravel())[0, 1]) < 0.015

    @pytest.mark.parametrize("top_k", [0, 3])
    def test_choice_samples_exactly_the_processed_distribution(self, top_k: int) -> None:
        logits = torch.randn(1, 40, generator=torch.Generator().manual_seed(5)) * 1.5
        options = GenerationOptions(temperature=0.9, top_k=top_k, seed=11)
        picks = Chooser(options).choose(logits.expand(SAMPLES, -1), 0)
        scaled = logits[0].numpy().astype(np.float64) / 0.9
        if top_k:
            scaled[np.argsort(scaled)[:-top_k]] = -np.inf
        expected = reference_softmax(scaled)
        counts = np.bincount(picks, minlength=40)
        assert counts[expected == 0].sum() == 0
        assert p_value(counts[expected > 0], expected[expected > 0]) > FALSE_ALARM

    def test_short_cut_over_the_top_k_picks_what_the_whole_vocabulary_would(self) -> None:
        logits = torch.randn(200, 400, generator=torch.Generator().manual_seed(6))
        logits[::3, :9] = 7.0  # ties at the edge of the support
        for k in (1, 2, 5, 8):
            options = GenerationOptions(temperature=1.1, top_k=k, seed=2)
            scores = process_logits(logits, options).double()
            noise = gumbel_noise(2, torch.arange(200)[:, None], torch.arange(400)[None])
            assert Chooser(options).choose(logits, 0) == (scores + noise).argmax(-1).tolist()

    def test_similar_distributions_mostly_pick_the_same_token(self) -> None:
        """What makes it worth having: near the optimum of 1 - TV(p, q)."""
        generator = torch.Generator().manual_seed(8)
        p_logits = torch.randn(1, 50, generator=generator)
        q_logits = p_logits + 0.5 * torch.randn(1, 50, generator=generator)
        chooser = Chooser(GenerationOptions(temperature=1.0, seed=1))
        p_picks = chooser.choose(p_logits.expand(5000, -1), 0)
        q_picks = chooser.choose(q_logits.expand(5000, -1), 0)
        agreement = np.mean(np.array(p_picks) == np.array(q_picks))
        overlap = float(torch.minimum(p_logits.softmax(-1), q_logits.softmax(-1)).sum())
        assert 0.85 * overlap < agreement <= overlap + 0.03


class Rejection(NamedTuple):
    """accepted: how many draft tokens stay. token: the recovered token, or the bonus token if all stay."""

    accepted: int
    token: int


Verify = Callable[[list[int], Tensor, Tensor, Tensor], Rejection]


def verify_chain(draft: list[int], q: Tensor, p: Tensor, uniforms: Tensor) -> Rejection:
    """A chain judged with the functions that SampledVerifier calls, and with nothing around them.

    draft: k ids sampled from the rows of q. q: probabilities float [k, vocab]; p: float [k + 1, vocab], the last row
    for the bonus token. uniforms: float64 [k + 1] in [0, 1): one an acceptance, the last for the draw.
    """
    numbers = uniforms.tolist()
    p_x = [float(p[index, token]) for index, token in enumerate(draft)]
    q_x = [float(q[index, token]) for index, token in enumerate(draft)]
    accepted = rejection.count_accepted(p_x, q_x, numbers[:-1])
    if accepted == len(draft):
        return Rejection(accepted, draw(p[accepted], numbers[-1]))
    residual = rejection.recovery_distribution(p[accepted], q[accepted])
    return Rejection(accepted, draw(residual, numbers[-1]))


def drawn(table: np.ndarray, states: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """A token for each state, int64 [n], from its row of a table of probabilities and a uniform number of its own."""
    return (table[states].cumsum(-1)[:, :-1] <= uniforms[:, None]).sum(-1)


def rejection_pvalue(verify: Verify, seed: int = 0, looks: Collection[int] = ()) -> float:
    """p-value of the joint distribution of the first two emitted tokens of speculative sampling over a toy language.

    Target and draft are random Markov chains over VOCABULARY tokens; three tokens are drafted; where fewer than two
    are emitted, the second is sampled from the target itself, as the next round would.

    looks: after this many samples it is also looked, and what is below FALSE_ALARM already is returned: for planted
    faults only, as every look more is one more chance of a false alarm.
    """
    rng = np.random.default_rng(100)
    p_table = reference_softmax(rng.normal(size=(VOCABULARY + 1, VOCABULARY)) * 1.5)
    q_table = reference_softmax(np.log(p_table) + rng.normal(size=p_table.shape) * 0.7)
    p, q = torch.from_numpy(p_table), torch.from_numpy(q_table)
    uniforms = torch.rand(
        SAMPLES, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    numbers = uniforms.numpy()
    states = np.full((SAMPLES, 4), VOCABULARY)
    for place in range(3):
        states[:, place + 1] = drawn(q_table, states[:, place], numbers[:, place])
    q_rows, p_rows = q[states[:, :3]], p[states]
    expected = p_table[VOCABULARY][:, None] * p_table[:VOCABULARY]
    emitted = np.full((SAMPLES, 2), -1)

    def found(samples: int, least: float) -> float:
        first, second = emitted[:samples].T
        second = np.where(second < 0, drawn(p_table, first, numbers[:samples, 7]), second)
        counts = np.bincount(first * VOCABULARY + second, minlength=VOCABULARY**2)
        return p_value(counts, expected.ravel(), least)

    for sample, draft in enumerate(states[:, 1:].tolist()):
        verdict = verify(draft, q_rows[sample], p_rows[sample], uniforms[sample, 3:7])
        tokens = [*draft[: verdict.accepted], verdict.token][:2]
        emitted[sample, : len(tokens)] = tokens
        if sample + 1 in looks and (early := found(sample + 1, 5.0)) < FALSE_ALARM:
            return early
    return found(SAMPLES, 0.0)


class TestRejectionSampling:
    """What comes out of judging is distributed as the target's own tokens; more planted faults are in test_mutants."""

    def test_emits_the_targets_distribution(self) -> None:
        assert rejection_pvalue(verify_chain) > FALSE_ALARM

    def test_a_missing_residual_is_caught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Drawing from p after a rejection."""
        monkeypatch.setattr(rejection, "recovery_distribution", lambda p, q: p)
        assert rejection_pvalue(verify_chain, looks=EARLY) < FALSE_ALARM

    def test_a_softmax_of_the_residual_is_caught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            rejection, "recovery_distribution", lambda p, q: torch.softmax(torch.clamp(p - q, min=0), -1)
        )
        assert rejection_pvalue(verify_chain, looks=EARLY) < FALSE_ALARM

    def test_equal_distributions_accept_everything_and_recover_from_p(self) -> None:
        p = torch.tensor([0.25, 0.75])
        assert torch.allclose(recovery_distribution(p, p), p.double())
        verdict = verify_chain([1], p[None], torch.stack([p, p]), torch.tensor([0.999999, 0.1]))
        assert verdict == Rejection(1, 0)

    def test_a_token_of_no_probability_is_never_drawn(self) -> None:
        distribution = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
        assert {draw(distribution, u) for u in (0.0, 0.4999, 0.5, 0.9999999999999999)} == {1, 3}


class TestRecoveryOnTheEdge:
    """The edge knows q, the cloud knows p: what travels after a rejection, and that it changes no distribution."""

    def emitted(
        self, recover: Callable[[Tensor, Tensor, list[float]], int], looks: Collection[int] = ()
    ) -> float:
        """p-value of the language of rejection_pvalue where `recover(p row, q row, numbers)` makes the token."""

        def verify(draft: list[int], q: Tensor, p: Tensor, uniforms: Tensor) -> Rejection:
            numbers = uniforms.tolist()
            accepted = rejection.count_accepted(
                [float(p[i, x]) for i, x in enumerate(draft)],
                [float(q[i, x]) for i, x in enumerate(draft)],
                numbers[: len(draft)],
            )
            if accepted == len(draft):
                return Rejection(accepted, draw(p[accepted], numbers[-1]))
            # The many numbers a recovery may need, from the one that is left.
            more = torch.rand(
                40, dtype=torch.float64, generator=torch.Generator().manual_seed(int(numbers[-1] * 2**62))
            )
            return Rejection(accepted, recover(p[accepted], q[accepted], more.tolist()))

        return rejection_pvalue(verify, looks=looks)

    def walk(
        self, p: Tensor, q: Tensor, numbers: list[float], k: int, samples: int, again: bool = False
    ) -> int:
        """Recovery from the k largest entries and batches of samples of the others, in the end from the whole row.

        again: plants the fault that the walk starts afresh with every batch.
        """
        best, listed = torch.topk(p, k)
        others = p.clone()
        others[listed] = 0.0
        listing = rejection.make_listing(listed.tolist(), best.tolist(), float(others.sum()), q)
        found = listing.step(numbers.pop())
        while found is None and len(numbers) > 3 * samples + 4:
            tokens = rejection.draw_many(others, [numbers.pop() for _ in range(samples)])
            uniforms = [numbers.pop() for _ in range(2 * samples)]
            found = rejection.recover_from_samples(
                listing, tokens, [float(p[s]) for s in tokens], q, uniforms
            )
            if found is None and again:
                found = listing.step(numbers.pop())
        if found is None:
            return rejection.recover_from_rest(p, listing.tokens, q, [numbers.pop() for _ in range(3)])
        return found

    def test_thinned_downlink_is_exact(self) -> None:
        assert self.emitted(lambda p, q, numbers: self.walk(p, q, numbers, 0, 4)) > FALSE_ALARM

    @pytest.mark.parametrize(("listed", "samples"), [(1, 1), (3, 100)])
    def test_a_sparse_row_with_samples_of_the_rest_is_exact(self, listed: int, samples: int) -> None:
        """100 samples are more than the numbers suffice for: the whole row decides at once."""
        assert self.emitted(lambda p, q, numbers: self.walk(p, q, numbers, listed, samples)) > FALSE_ALARM

    @pytest.mark.parametrize("again", [False, True])
    def test_a_walk_that_starts_afresh_with_every_batch_is_caught(self, again: bool) -> None:
        """One row whose tail mostly fails, so that a walk takes many samples."""
        p = torch.tensor([0.3, 0.1, 0.3, 0.1, 0.1, 0.1], dtype=torch.float64)
        q = torch.tensor([0.25, 0.2, 0.22, 0.08, 0.16, 0.09], dtype=torch.float64)
        numbers = torch.rand(
            2000, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(4)
        ).tolist()
        found = [self.walk(p, q, row, 1, 1, again) for row in numbers]
        residual = np.clip(p.numpy() - q.numpy(), 0, None)
        counts = np.bincount(found, minlength=6)
        assert counts[residual == 0].sum() == 0
        exact = p_value(counts[residual > 0], residual[residual > 0] / residual.sum())
        assert (exact < FALSE_ALARM) if again else (exact > FALSE_ALARM)

    def test_a_whole_new_start_where_the_rest_was_needed_is_caught(self) -> None:
        def fresh(p: Tensor, q: Tensor, numbers: list[float]) -> int:
            best, tokens = torch.topk(p, 3)
            listing = rejection.make_listing(tokens.tolist(), best.tolist(), float(p.sum() - best.sum()), q)
            found = listing.step(numbers[0])
            return draw(recovery_distribution(p, q), numbers[1]) if found is None else found

        assert self.emitted(fresh, EARLY) < FALSE_ALARM
