"""`specnav top`: what happened between two looks at /metrics, and what is shown while nothing answers."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence

import pytest
from rich.console import Console, RenderableType

from specnav.errors import UsageError
from specnav.top import scrape
from specnav.top.run import VerifierWatch
from specnav.top.scrape import Address, Interval, MetricSample, Quantile, Scrape, ScrapeFailed, fetch, parse
from specnav.top.view import view_of
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


def shown(view: RenderableType) -> str:
    """As on a terminal, each run of spaces as one."""
    out = io.StringIO()
    Console(file=out, width=80).print(view)
    return "\n".join(" ".join(line.split()) for line in out.getvalue().splitlines())


def test_figures_are_of_what_happened_in_between() -> None:
    verifier = MadeUpVerifier("robot-1", "robot-2")
    work(verifier, "robot-1")
    before = scraped(verifier, 100.0)
    work(verifier, "robot-2")
    text = shown(view_of("here", Interval(before, scraped(verifier, 102.0))))
    # 6 of 10 within (10, 25] ms, 4 within (100, 250] ms: as histogram_quantile reckons.
    assert "tokens/s 15.0 verify p50/p95 22.5 / 231 ms\nforwards/s 5.0 queue p50/p95 " in text
    assert "\nbatch 2.00 hints " in text and "\nrows 6.00 KV 5.0 kB of " in text and "\nbusy 20% " in text
    assert "\naccepted 50% evicted 0 (0 in total), 0 restored\n" in text and " refused 2 (4 in total)\n" in text
    first, second = text.splitlines()[-2:]
    assert first.startswith("robot-2 ") and " 15.0 50% 5.0 150 B 0 B 5.0 kB 2 (2 in total)" in first
    assert second.startswith("robot-1 ") and " 0.0 – 0.0 0 B 0 B 5.0 kB 0 (2 in total)" in second


def test_a_verifier_that_began_anew_is_counted_from_then() -> None:
    old, new = MadeUpVerifier("robot-1"), MadeUpVerifier("robot-1")
    work(old, "robot-1")
    work(old, "robot-1")
    work(new, "robot-1")
    found = Interval(scraped(old, 0.0), scraped(new, 1.0))
    assert found.rate("verified_tokens_total") == 30.0
    assert found.quantiles("verify_seconds")[0].seconds == pytest.approx(0.0225)


def test_more_than_the_last_bound_is_told_as_more() -> None:
    verifier = MadeUpVerifier("robot-1")
    before = scraped(verifier, 0.0)
    verifier.load.replied(9_000_000, 0, 1)
    found = Interval(before, scraped(verifier, 1.0))
    assert found.quantiles("verify_seconds") == (Quantile(2.5, True),) * 2
    assert found.share("hint_seconds_sum", "hint_seconds_count") is None


def test_a_verifier_that_goes_away_is_waited_for() -> None:
    verifier, now = MadeUpVerifier("robot-1\x1b[2J"), [0.0]
    answers = [True]

    def text() -> str:
        if not answers[0]:
            raise ScrapeFailed("nothing is there")
        return verifier.text()

    watch = VerifierWatch(Address("here", 1), text, lambda: now[0])

    def look_at(at_s: float) -> None:
        now[0] = at_s
        work(verifier, "robot-1\x1b[2J")
        watch.look()

    look_at(0.0)
    look_at(1.0)
    text = shown(watch.view())
    assert "30.0" in text and "\x1b" not in text and "…" not in text
    answers[0] = False
    with pytest.raises(ScrapeFailed):
        look_at(5.0)
    text = shown(watch.view())
    assert "no answer since" in text and "(4 s)" in text and "30.0" in text
    answers[0] = True
    look_at(60.0)
    text = shown(watch.view())
    assert "no answer" not in text and "tokens/s" not in text, "an interval with an outage in it tells nothing"
    look_at(61.0)
    assert "30.0" in shown(watch.view())


@pytest.mark.parametrize(
    "text", ["", "<html>", "up 1\n", 'specdec_forwards_total{x="', 'specdec_x_bucket{le="a"} 1\n']
)
def test_what_is_no_verifiers_metrics_is_one_line(text: str) -> None:
    with pytest.raises(ScrapeFailed) as told:
        parse(text, 0.0)
    assert "\n" not in str(told.value)


def test_addresses() -> None:
    assert str(Address.parse("http://[::1]:9464/metrics")) == "[::1]:9464"
    for wrong in ("here", "here:", ":9464", "here:0", "here:99999", "here:x", "he re:1", "a\x1b:1", "a:\uff11"):
        with pytest.raises(UsageError, match="HOST:PORT"):
            Address.parse(wrong)


@pytest.mark.timeout(20)
def test_an_answer_that_comes_in_drops_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "TIMEOUT_S", 0.1)
    left = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            while not left.wait(0.01):
                connection.sendall(b"a")

    with socket.create_server(("127.0.0.1", 0)) as server:
        dripping = threading.Thread(target=drip, args=(server,))
        dripping.start()
        with pytest.raises(ScrapeFailed, match="timed out"):
            fetch(Address.parse(f"127.0.0.1:{server.getsockname()[1]}"))
        left.set()
        dripping.join()
