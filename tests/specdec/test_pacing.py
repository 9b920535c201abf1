"""Pacing: a minimum time a forward, spread over its layers, and the same tokens."""

from __future__ import annotations

import pytest
import torch

from specdec.errors import OptionsError
from specdec.models import Prompt
from specdec.models.local import generate_local
from specdec.models.pacing import Pacer, pace
from specdec.options import GenerationOptions


class FakeTime:
    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_each_layer_ends_at_its_share_of_the_minimum():
    time = FakeTime()
    ends: list[float] = []
    after_layer = Pacer(0.4, 4, time.clock, time.sleep).begin(lambda index, hidden: ends.append(time.now))
    for index in range(4):
        after_layer(index, torch.zeros(1))
    assert ends == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_a_slow_layer_is_made_up_for_and_a_slow_forward_is_not_delayed():
    time = FakeTime()
    after_layer = Pacer(0.4, 4, time.clock, time.sleep).begin()
    time.now = 0.25
    after_layer(0, torch.zeros(1))
    assert time.now == 0.25
    after_layer(1, torch.zeros(1))
    after_layer(2, torch.zeros(1))
    assert time.now == pytest.approx(0.3)
    time.now = 1.0
    after_layer(3, torch.zeros(1))
    assert time.now == 1.0


def test_a_pass_over_the_last_layers_takes_their_share():
    time = FakeTime()
    after_layer = Pacer(0.4, 4, time.clock, time.sleep).begin()
    for index in (2, 3):
        after_layer(index, torch.zeros(1))
    assert time.now == pytest.approx(0.2)


def test_pacing_a_model_slows_it_and_changes_no_token(text_pair):
    model, options = text_pair.draft, GenerationOptions(max_new_tokens=5)
    prompt = Prompt((1, 2, 3))
    free = generate_local(model, prompt, options)
    pauses: list[float] = []
    pace(model, 8)
    try:
        assert model.runner.pacer is not None
        model.runner.pacer._sleep = pauses.append
        assert generate_local(model, prompt, options) == free
    finally:
        pace(model, 0)
    assert len(pauses) >= 5
    assert model.runner.pacer is None


@pytest.mark.parametrize("minimum_ms", [-1, 60_001, float("nan")])
def test_absurd_pacing_is_refused(text_pair, minimum_ms):
    with pytest.raises(OptionsError, match="out of range"):
        pace(text_pair.draft, minimum_ms)
