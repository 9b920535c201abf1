"""Tuners of thresholds beside other rules, in the simulated clock."""

from __future__ import annotations

import sys

import pytest

from benchmarks import tuned_triggers
from benchmarks.regret.language import SimulatedLanguage
from benchmarks.tuned_triggers import fit_of, optuna_module, tau_of, tune, tuners
from specnav.errors import UsageError

pytestmark = pytest.mark.slow


def test_the_simulated_draft_is_accepted_as_often_as_the_point_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned_triggers, "FIT_STEPS", 7)
    other_words = SimulatedLanguage(77, fit_of(5.2, 6, 1.0), 6000)
    assert tau_of(other_words, 6) == pytest.approx(5.2, rel=0.05)
    with pytest.raises(UsageError, match="no simulated draft of heat 1"):
        fit_of(6.9, 6, 1.0)


def test_without_optuna_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr(sys, "argv", ["tuned_triggers"])
    with pytest.raises(SystemExit):
        tuned_triggers.main()
    assert "pip install 'specnav[tune]'" in capsys.readouterr().err.splitlines()[-1]


def test_every_tuner_makes_its_trials_and_finds_its_best() -> None:
    pytest.importorskip("optuna")
    optuna = optuna_module()
    for name, sampler in tuners(optuna, 3).items():
        trials: list[tuple[int, tuple[float, float]]] = []

        def measured(number: int, pair: tuple[float, float], trials: list = trials) -> float:
            trials.append((number, pair))
            return 50.0 + 100.0 * ((pair[0] - 0.6) ** 2 + (pair[1] - 0.4) ** 2)

        found = tune(optuna, sampler, measured)
        assert [number for number, _ in trials] == list(range(16)), name
        assert found.trial_ms > 50.0 and found.pair == min(trials, key=lambda one: measured(*one, []))[1], name
        if name == "grid":
            assert found.pair == (0.6, 0.4) and len(set(trials)) == 16
        if name == "Gaussian process":
            assert found.pair == pytest.approx((0.6, 0.4), abs=0.12)


def test_the_table_has_every_rule_and_the_tuners(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    for name, value in (("FIT_STEPS", 7), ("TEXT", (32,)), ("HINDSIGHT", [0.5]), ("FAMILIES", ("sd",)), ("TRIALS", 4)):
        monkeypatch.setattr(tuned_triggers, name, value)
    monkeypatch.setattr(sys, "argv", ["tuned_triggers", "--texts", "2", "--trial-tokens", "8"])
    assert tuned_triggers.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("simulated: pipesd-humaneval")
    assert [line.split("|")[1].strip() for line in said[3:]] == [
        *tuned_triggers.FIXED, *tuned_triggers.TAUGHT, "Gaussian process", "grid", "random", "hindsight",
    ]  # fmt: skip
