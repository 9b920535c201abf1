"""Pacing: a minimum time a forward, spread over its layers, and the same tokens."""

from __future__ import annotations

import pickle

import pytest
import torch

from specdec.errors import OptionsError
from specdec.models import Prompt
from specdec.models.local import generate_local
from specdec.models.timing.pacing import Pacer, pace
from specdec.options import GenerationOptions
from specdec.row_ms import RowMs, read_ms
from tests.helpers.waiting import Clock


def test_each_layer_ends_at_its_share_of_the_minimum():
    time = Clock()
    ends: list[float] = []
    after_layer = Pacer(400.0, 4, time, time.sleep).begin(
        1, lambda index, hidden: ends.append(time.now)
    )
    for index in range(4):
        after_layer(index, torch.zeros(1))
    assert ends == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_a_slow_layer_is_made_up_for_and_a_slow_forward_is_not_delayed():
    time = Clock()
    after_layer = Pacer(400.0, 4, time, time.sleep).begin(1)
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
    time = Clock()
    after_layer = Pacer(400.0, 4, time, time.sleep).begin(1)
    for index in (2, 3):
        after_layer(index, torch.zeros(1))
    assert time.now == pytest.approx(0.2)


def test_pacing_a_model_slows_it_and_changes_no_token(text_pair):
    model, options = text_pair.draft, GenerationOptions(max_new_tokens=5)
    prompt = Prompt((1, 2, 3))
    free = generate_local(model, prompt, options)
    pauses: list[float] = []
    pace(model, 500)  # more than a forward takes on a busy machine; nothing sleeps
    try:
        assert model.runner.pacer is not None
        model.runner.pacer._sleep = pauses.append
        assert generate_local(model, prompt, options) == free
    finally:
        pace(model, 0)
    assert len(pauses) >= 3  # one a forward
    assert model.runner.pacer is None


@pytest.mark.parametrize("minimum_ms", [-1, 60_001, float("nan")])
def test_absurd_pacing_is_refused(text_pair, minimum_ms):
    with pytest.raises(OptionsError, match="out of range"):
        pace(text_pair.draft, minimum_ms)


class TestByRows:
    def test_between_two_points_it_is_a_line_and_beyond_them_level(self) -> None:
        times = read_ms("72:1,90:4,160:8")
        assert isinstance(times, RowMs) and times == 72.0
        assert [times.for_rows(rows) for rows in (1, 2, 4, 6, 8, 400)] == [72, 78, 90, 125, 160, 160]
        assert RowMs(((3, 5.0),)).for_rows(1) == 5.0

    def test_it_reads_what_it_writes_and_can_be_scaled_and_copied(self) -> None:
        times = read_ms("72:1,90:4")
        assert isinstance(times, RowMs)
        assert read_ms(str(times)) == times and str(times * 0.5) == "36:1,45:4"
        assert pickle.loads(pickle.dumps(times)).points == times.points
        assert f"{times:.10g}" == str(times), "a command line leaves no row out"
        assert read_ms("40") == 40.0

    @pytest.mark.parametrize(
        "text", ["", "x", "72:0", "72:4,80:2", "72:1,80:1", "7:1,", ":1", "70000:1", "-1:1", "1:1:1"]
    )
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(OptionsError):
            read_ms(text)

    def test_a_forward_takes_the_time_of_its_rows(self) -> None:
        time = Clock()
        pacer = Pacer(read_ms("100:1,400:4"), 2, time, time.sleep)
        for rows, ends in ((1, 0.1), (4, 0.5), (3, 0.8)):
            after_layer = pacer.begin(rows)
            for layer in range(2):
                after_layer(layer, torch.zeros(1))
            assert time.now == pytest.approx(ends)


def test_a_pacer_counts_the_forwards_that_are_late():
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    pacer = Pacer(100.0, 2, clock=lambda: now[0], sleep=sleep)
    for slow_s in (0.0, 0.0, 0.25):
        after_layer = pacer.begin(1)
        for layer in range(2):
            now[0] += slow_s
            after_layer(layer, None)
    assert (pacer.forwards, pacer.late) == (3, 1) and pacer.worst == pytest.approx(5.0)
    assert pacer.mean == pytest.approx((0.1 + 0.1 + 0.5) / 0.3)


def test_a_forward_that_nobody_looks_into_waits_once_for_as_long():
    pauses: list[float] = []
    pacer = Pacer(100.0, 4, clock=lambda: sum(pauses), sleep=pauses.append)
    for layers, expected in ((4, 0.1), (3, 0.075)):
        pauses.clear()
        after_layer = pacer.begin(1, None, layers)
        for layer in range(layers):
            after_layer(layer, None)
        assert pauses == [pytest.approx(expected)]
    pauses.clear()
    after_layer = pacer.begin(1, lambda index, hidden: None, 4)
    for layer in range(4):
        after_layer(layer, None)
    assert len(pauses) == 4
