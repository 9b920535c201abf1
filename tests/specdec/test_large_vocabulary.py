"""Picking from large vocabularies on a CPU: most of the work is left out, and what is picked is the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specdec.options import GenerationOptions
from specdec.sampling import Chooser
from specdec.sampling.noise import gumbel_noise, noisy_argmax
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1e-9, 0.1, 0.5, 0.9, 0.999999])
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


def test_rows_together_are_as_rows_alone() -> None:
    chooser = Chooser(GenerationOptions(temperature=0.8, top_p=0.9, seed=11))
    logits = rows("spread")
    alone = [chooser.choose(row[None], 4 + place)[0] for place, row in enumerate(logits)]
    assert chooser.choose(logits, 4) == alone
