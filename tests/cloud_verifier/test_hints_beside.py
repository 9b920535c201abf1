"""Exits on a stream of their own: in what order the device is told, and that hints and verdicts stay what they are.

The streams are made up: a real GPU was not there when this was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from specdec.verifying.hints.hints import DraftHints, ExitOutcome, HintMaker
from specdec.verifying.hints.side_stream import SideStream
from tests.cloud_verifier.hinting import Cloud, hints_of, make_exits, plain, rounds
from tests.helpers.servers import Pair


class MadeUpEvent:
    def __init__(self, streams: RecordingStreams, name: str) -> None:
        self._streams = streams
        self.name = name
        self.looked = 0

    def query(self) -> bool:
        self.looked += 1
        passed = self._streams.passed(self)
        self._streams.told.append(f"{self.name} {'passed' if passed else 'pending'}")
        return passed


class RecordingStreams:
    """Writes down what it is told. An event comes to pass when it has been asked about this many times."""

    def __init__(self, side_after: int = 1, main_after: int = 1) -> None:
        self.told: list[str] = []
        self._after = {"side": side_after, "main": main_after}
        self._events = {"side": 0, "main": 0}
        self._inside = False

    def passed(self, event: MadeUpEvent) -> bool:
        return event.looked >= self._after[event.name.split("-")[0]]

    def mark_main(self) -> MadeUpEvent:
        assert not self._inside
        return self._mark("main")

    @contextmanager
    def side(self) -> Iterator[None]:
        self.told.append("to the side")
        self._inside = True
        yield
        self._inside = False
        self.told.append("to main")

    def side_waits_for(self, event: MadeUpEvent, hidden: Tensor) -> None:
        assert self._inside
        self.told.append(f"side waits for {event.name}")

    def copy_to_host(self, result: Tensor) -> Tensor:
        assert self._inside, "the copy is made on the side stream"
        self.told.append("copy")
        return result.clone()

    def mark_side(self) -> MadeUpEvent:
        return self._mark("side")

    def _mark(self, stream: str) -> MadeUpEvent:
        self._events[stream] += 1
        event = MadeUpEvent(self, f"{stream}-{self._events[stream]}")
        self.told.append(f"mark {event.name}")
        return event


def started(streams: RecordingStreams, results: list[Tensor]) -> SideStream:
    beside = SideStream(streams, sleep=lambda seconds: streams.told.append("sleep"))

    def work(hidden: Tensor) -> Tensor:
        streams.told.append("work")
        return hidden * 2

    beside.start(torch.ones(2), work, results.append)
    return beside


def test_an_exit_is_told_to_wait_for_its_layer_and_nothing_waits_for_the_exit() -> None:
    streams, results = RecordingStreams(), []
    beside = started(streams, results)
    assert streams.told == [
        "mark main-1", "to the side", "side waits for main-1", "work", "copy", "mark side-1", "to main",
    ]  # fmt: skip
    assert not results, "nothing is read while layers are being issued"
    beside.finish()
    assert [one.tolist() for one in results] == [[2.0, 2.0]]
    assert streams.told[7:] == ["mark main-2", "main-2 passed", "side-1 passed"]


def test_results_are_taken_as_they_get_ready_until_the_forward_is_done() -> None:
    streams, results = RecordingStreams(side_after=3, main_after=9), []
    started(streams, results).finish()
    assert len(results) == 1 and streams.told.count("sleep") == 2, "asked three times, slept between"
    assert streams.told[-1] == "side-1 passed", "with nothing left to take it does not wait for the forward"


def test_what_is_late_is_dropped_and_nobody_waits_for_it() -> None:
    streams, results = RecordingStreams(side_after=9, main_after=3), []
    beside = started(streams, results)
    beside.finish()
    assert not results and streams.told.count("sleep") == 2
    before = list(streams.told)
    beside.finish()
    assert streams.told == before, "where nothing is under way nothing is asked"


def test_a_later_exit_hands_over_what_an_earlier_one_has_ready() -> None:
    streams, results = RecordingStreams(), []
    beside = started(streams, results)
    beside.start(torch.zeros(2), lambda hidden: hidden, results.append)
    assert [one.tolist() for one in results] == [[2.0, 2.0]]
    beside.forget()
    beside.finish()
    assert len(results) == 1


def test_hints_beside_are_those_of_exits_on_the_spot(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a hint depends on when it is read, and nothing of a verdict on hints."""
    here = HintMaker(make_exits(pair.target))
    streams = RecordingStreams()
    there = HintMaker(make_exits(pair.target), beside=SideStream(streams))
    found: dict[str, list[ExitOutcome]] = {"here": [], "there": []}
    original = DraftHints.outcomes

    def outcomes(self: DraftHints, layer: int, chances: Tensor) -> list[ExitOutcome]:
        made = original(self, layer, chances)
        found["here" if self._session.maker is here else "there"] += made
        return made

    monkeypatch.setattr(DraftHints, "outcomes", outcomes)
    on_the_spot, beside = (rounds(Cloud(pair.target, maker), 1, hints=8) for maker in (here, there))
    assert plain(on_the_spot) == plain(beside)
    assert found["there"] == found["here"] and found["here"]
    assert hints_of(beside) and "copy" in streams.told
    for number in range(1, 6):
        of_round = [m for m in beside if getattr(m, "round", 0) == number]
        assert all(one in hints_of(of_round) for one in of_round[:-1]) and of_round[-1] not in hints_of(
            of_round
        )


def test_an_exit_that_fails_beside_takes_only_the_hints_with_it(pair: Pair) -> None:
    class Broken(RecordingStreams):
        def copy_to_host(self, result: Tensor) -> Tensor:
            raise RuntimeError("no pinned memory is left")

    expected = plain(rounds(Cloud(pair.target, None), 1))
    cloud = Cloud(pair.target, HintMaker(make_exits(pair.target), beside=SideStream(Broken())))
    assert plain(rounds(cloud, 1, hints=8)) == expected
    assert cloud.log.getvalue().count("hints_failed") == 1
