"""Slopes: what grows is distinguished from what jitters or jumps once."""

from __future__ import annotations

import random

import pytest

from specnav.drill.growth import Allowance, growth, slope
from specnav.drill.results import Sample


def samples(rss, fds=lambda n: 40, count=100):
    return [Sample(float(n), rss(n), fds(n), 12) for n in range(count)]


def test_the_slope_of_a_line_is_its_slope_and_of_nothing_zero():
    assert slope([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) == 2.0
    assert slope([]) == slope([(1.0, 1.0)]) == 0.0


def test_a_few_wild_samples_do_not_bend_it():
    points = [(float(n), 0.5 * n) for n in range(100)]
    points[40] = (40.0, 5000.0)
    assert slope(points) == pytest.approx(0.5)


def test_jitter_a_warm_up_and_one_jump_are_no_growth():
    generator = random.Random(1)
    for rss in (
        lambda n: 300 + generator.gauss(0, 2),
        lambda n: 300 + min(n, 20) * 5,
        lambda n: 300 + (8 if n > 85 else 0),
    ):
        assert all(row.flat for row in growth("p", samples(rss), Allowance(5.0)))


def test_a_leak_of_memory_or_of_a_descriptor_now_and_then_is_growth():
    by_name = {row.quantity: row for row in growth("p", samples(lambda n: 300 + 0.2 * n), Allowance(5.0))}
    assert not by_name["memory"].flat and by_name["memory"].grew == pytest.approx(15, rel=0.05)
    assert by_name["descriptors"].flat
    leaky = samples(lambda n: 300, lambda n: 40 + n // 10)
    by_name = {row.quantity: row for row in growth("p", leaky, Allowance(5.0))}
    assert by_name["memory"].flat and not by_name["descriptors"].flat
