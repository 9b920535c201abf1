"""Picking from large vocabularies on a CPU: most of the work is left out, and what is picked is the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specdec.options import GenerationOptions
from specdec.sampling import Chooser
from specdec.sampling.noise import _at_least, gumbel_noise, hashed_uniform, noisy_argmax
from specdec.sampling.processors import keep_top_p

VOCAB = 20_000


def rows(kind: str) -> Tensor:
    made = torch.Generator().manual_seed(7)
    normal = torch.randn(6, VOCAB, generator=made)
    if kind == "coarse":
        return (3.0 * normal).round()  # many equals
    if kind == "cut":
        return (3.0 * normal).masked_fill(normal < 2.5, float("-inf"))
    if kind == "few":
        return normal.masked_fill(torch.rand(normal.shape, generator=made) < 0.9995, float("-inf"))
    return {"spread": 3.0 * normal, "sharp": 12.0 * normal, "flat": torch.zeros_like(normal)}[kind]


KINDS = ("spread", "sharp", "flat", "coarse", "cut", "few")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_the_pick_is_that_of_all_the_noise(kind: str, seed: int) -> None:
    scores = torch.log_softmax(rows(kind), dim=-1)
    positions = torch.arange(5, 5 + len(scores))
    noise = gumbel_noise(seed, positions[:, None], torch.arange(VOCAB)[None, :])
    assert noisy_argmax(scores, seed, positions).tolist() == (scores.double() + noise).argmax(dim=-1).tolist()


def test_a_token_with_little_chance_is_picked_when_its_noise_is_large() -> None:
    """All alike: what is picked is nearly never among the few that are looked at first."""
    scores = torch.log_softmax(rows("flat"), dim=-1)
    assert sum(token >= 64 for token in noisy_argmax(scores, 3, torch.arange(len(scores))).tolist()) > 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1e-9, 0.1, 0.5, 0.9, 0.999999, 1.0 - 1e-15])
def test_the_nucleus_is_the_smallest_set_of_the_likeliest_that_reaches_p(kind: str, p: float) -> None:
    scores = rows(kind)
    kept = ~torch.isinf(keep_top_p(scores, p)) & ~torch.isinf(scores)
    chances = torch.softmax(scores.double(), dim=-1)
    ordered, order = torch.sort(scores, dim=-1, descending=True, stable=True)
    mass_before = chances.gather(1, order).cumsum(dim=-1) - chances.gather(1, order)
    clear = (mass_before - p).abs() > 1e-5  # nearer to the edge, how sums are rounded decides
    expected = (mass_before < p) & ~torch.isinf(ordered)
    assert torch.equal(kept.gather(1, order)[clear], expected[clear])
    assert kept.any(dim=-1).all()
    assert torch.equal(keep_top_p(scores, p)[kept], scores[kept])


def slowly_picked(row: Tensor, position: int, options: GenerationOptions) -> int:
    """By sorting everything, in float64, and with all of the noise."""
    scores = (row / options.temperature).double()
    if options.top_k:
        scores = scores.masked_fill(
            scores < scores.sort(descending=True).values[options.top_k - 1], float("-inf")
        )
    ordered, order = torch.sort(scores, descending=True, stable=True)
    chances = ordered.softmax(-1)
    cut = torch.zeros_like(scores, dtype=torch.bool)
    cut[order] = chances.cumsum(-1) - chances >= options.top_p
    if options.min_p:
        cut |= scores.exp() < options.min_p * scores.max().exp()
    noise = gumbel_noise(options.seed, torch.tensor(position), torch.arange(VOCAB))
    return int((scores.masked_fill(cut, float("-inf")) + noise).argmax())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "cut",
    [
        {},
        {"top_k": 1},
        {"top_k": 50},
        {"top_k": 1500},
        {"top_p": 0.9},
        {"min_p": 0.05},
        {"top_k": 50, "top_p": 0.8},
        {"top_k": 60, "top_p": 0.95, "min_p": 0.01},
    ],
)
def test_what_is_picked_is_what_sorting_everything_picks(kind: str, cut: dict[str, float]) -> None:
    options = GenerationOptions(temperature=0.7, seed=5, **cut)  # type: ignore[arg-type]
    logits = rows(kind).repeat(3, 1)
    expected = [slowly_picked(row, 9 + place, options) for place, row in enumerate(logits)]
    assert Chooser(options).choose(logits, 9) == expected


@pytest.mark.parametrize("bits", [0, 1 << 40, 1 << 51, (1 << 52) - (1 << 40), (1 << 52) - 1])
def test_no_token_with_much_noise_is_overlooked(bits: int) -> None:
    for seed, position in ((0, 0), (3, 70), (2**63 - 1, 12), (2**40, 100_000)):
        numbers = hashed_uniform(seed, torch.tensor(position), torch.arange(VOCAB))
        enough = torch.nonzero(numbers >= bits * 2.0**-52)[:, 0].tolist()
        found = _at_least(bits, seed, position, VOCAB).tolist()
        assert set(enough) <= set(found) and len(found) <= len(enough) + VOCAB * 2.0**-30 + 1


def test_rows_together_are_as_rows_alone() -> None:
    chooser = Chooser(GenerationOptions(temperature=0.8, top_p=0.9, seed=11))
    logits = rows("spread")
    alone = [chooser.choose(row[None], 4 + place)[0] for place, row in enumerate(logits)]
    assert chooser.choose(logits, 4) == alone
