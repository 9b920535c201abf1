"""`specnav top`: what happened between two looks at /metrics, and what is shown while nothing answers."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence

import pytest
from rich.console import Console

from specnav.errors import UsageError
from specnav.top.figures import Quantile, figures_between
from specnav.top.run import VerifierWatch
from specnav.top.scrape import Address, MetricSample, Scrape, ScrapeFailed, parse
from tests.helpers.made_up_verifier import MadeUpVerifier


class Exported(Mapping[str, Sequence[MetricSample]]):
    """The samples of a scrape; to ask for one that is not exported is an error, not a 0."""

    def __init__(self, samples: Mapping[str, Sequence[MetricSample]]) -> None:
        self._samples = samples

    def __getitem__(self, name: str) -> Sequence[MetricSample]:
        assert name in self._samples, f"no verifier exports {name}"
        return self._samples[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._samples)

    def __len__(self) -> int:
        return len(self._samples)


def scraped(verifier: MadeUpVerifier, at_s: float) -> Scrape:
    return Scrape(at_s, Exported(parse(verifier.text(), at_s).samples))


def work(verifier: MadeUpVerifier, name: str) -> None:
    """Ten forwards of two sessions and 6 rows, 0.04 s each, and a verdict of each for one client."""
    for at in range(10):
        verifier.load.ran(2, 6, 0.04)
        verifier.load.replied(20_000 if at < 6 else 200_000, 3_000, 3)
    client = verifier.clients[name]
    client.tokens += 30
    client.drafted += 40
    client.accepted += 20
    client.messages_up += 10
    client.bytes_up += 300
    client.refused["busy"] += 2
    verifier.now["kv_admitted_bytes"] = verifier.kv[name] = 5000


def test_figures_are_of_what_happened_in_between() -> None:
    verifier = MadeUpVerifier("robot-1", "robot-2")
    work(verifier, "robot-1")
    before = scraped(verifier, 100.0)
    work(verifier, "robot-2")
    found = figures_between(before, scraped(verifier, 102.0))
    assert (found.tokens_per_s, found.forwards_per_s, found.batch, found.rows) == (15.0, 5.0, 2.0, 6.0)
    assert found.busy == pytest.approx(0.2) and found.acceptance == 0.5
    # 6 of 10 within (10, 25] ms, 4 within (100, 250] ms: as histogram_quantile reckons.
    assert found.verify[0].seconds == pytest.approx(0.01 + 0.015 * 5 / 6)
    assert found.verify[1].seconds == pytest.approx(0.1 + 0.15 * 3.5 / 4)
    assert (found.refusals, found.refusals_in_all, found.kv_bytes) == (2, 4, 5000)
    first, second = found.clients
    assert (first.name, first.tokens_per_s, first.up_bytes_per_s, first.refusals) == ("robot-2", 15.0, 150.0, 2)
    assert (second.name, second.tokens_per_s, second.acceptance, second.refusals_in_all) == ("robot-1", 0.0, None, 2)


def test_a_verifier_that_began_anew_is_counted_from_then() -> None:
    old, new = MadeUpVerifier("robot-1"), MadeUpVerifier("robot-1")
    work(old, "robot-1")
    work(old, "robot-1")
    work(new, "robot-1")
    found = figures_between(scraped(old, 0.0), scraped(new, 1.0))
    assert found.tokens_per_s == 30.0 and found.verify[0].seconds == pytest.approx(0.0225)


def test_more_than_the_last_bound_is_told_as_more() -> None:
    verifier = MadeUpVerifier("robot-1")
    before = scraped(verifier, 0.0)
    verifier.load.replied(9_000_000, 0, 1)
    found = figures_between(before, scraped(verifier, 1.0))
    assert found.verify == (Quantile(2.5, True),) * 2 and found.hint_s is None


def test_a_verifier_that_goes_away_is_waited_for() -> None:
    verifier, now = MadeUpVerifier("robot-1\x1b[2J"), [0.0]
    answers = [True]

    def text() -> str:
        if not answers[0]:
            raise ScrapeFailed("nothing is there")
        return verifier.text()

    watch = VerifierWatch(Address("here", 1), text, lambda: now[0])

    def shown() -> str:
        out = io.StringIO()
        Console(file=out, width=80).print(watch.view())
        return out.getvalue()

    def look_at(at_s: float) -> None:
        now[0] = at_s
        work(verifier, "robot-1\x1b[2J")
        watch.look()

    look_at(0.0)
    look_at(1.0)
    assert "30.0" in shown() and "\x1b" not in shown() and "…" not in shown()
    answers[0] = False
    with pytest.raises(ScrapeFailed):
        look_at(5.0)
    assert "no answer since" in shown() and "(4 s)" in shown() and "30.0" in shown()
    answers[0] = True
    look_at(60.0)
    assert "no answer" not in shown() and "tokens/s" not in shown(), "an interval with an outage in it tells nothing"
    look_at(61.0)
    assert "30.0" in shown()


@pytest.mark.parametrize(
    "text", ["", "<html>", "up 1\n", 'specdec_forwards_total{x="', 'specdec_x_bucket{le="a"} 1\n']
)
def test_what_is_no_verifiers_metrics_is_one_line(text: str) -> None:
    with pytest.raises(ScrapeFailed) as told:
        parse(text, 0.0)
    assert "\n" not in str(told.value)


def test_addresses() -> None:
    assert str(Address.parse("http://[::1]:9464/metrics")) == "[::1]:9464"
    for wrong in ("here", "here:", ":9464", "here:0", "here:99999", "here:x"):
        with pytest.raises(UsageError, match="HOST:PORT"):
            Address.parse(wrong)
