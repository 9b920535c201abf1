"""How an edge tries again, in made-up time; and what it does not even ask for."""

from __future__ import annotations

import logging

import pytest

from specdec.edge.liveness import Heartbeat, Patience
from specdec.edge.protocol import refusal
from specdec.errors import LinkLost, OptionsError, ProtocolError, RequestRefused, VerifierBusy
from specdec.link import wire
from specdec.link.channel import Link
from specdec.options import RESUME_TIMEOUT_S
from tests.helpers.waiting import Clock

BUSY = VerifierBusy("the verifier is busy")


def pauses(patience: Patience, clock: Clock, error: LinkLost) -> list[float]:
    """Until it has none any more."""
    found = []
    while (pause := patience.pause_s(error, False)) is not None:
        found.append(pause)
        clock.now += pause
    return found


def test_pauses_double_up_to_the_longest_and_end_with_the_time() -> None:
    clock = Clock()
    found = pauses(Patience(10.0, clock, lambda: 0.5), clock, BUSY)
    assert found[:6] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0])
    assert max(found) == 2.0 and clock.now == pytest.approx(10.0)


def test_edges_turned_away_together_do_not_come_back_together() -> None:
    clocks = Clock(), Clock()
    first, second = (
        pauses(Patience(5.0, clock, lambda chance=chance: chance), clock, BUSY)  # type: ignore[misc]
        for clock, chance in zip(clocks, (0.0, 0.99), strict=True)
    )
    assert first[0] == pytest.approx(0.05) and second[0] == pytest.approx(0.149)


def test_a_lost_link_is_tried_at_an_even_pace_and_nobody_waits_without_time() -> None:
    clock = Clock()
    assert set(pauses(Patience(1.0, clock), clock, LinkLost("lost"))) == {0.1}
    for error in (BUSY, LinkLost("lost")):
        patience = Patience(0.0, clock)
        assert patience.pause_s(error, False) is None
        assert patience.pause_s(error, True) is not None


def test_a_lost_link_is_said_once_with_the_time_that_is_left(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    patience = Patience(RESUME_TIMEOUT_S, clock)
    patience.begin()
    with caplog.at_level(logging.WARNING):
        pauses(patience, clock, LinkLost("nothing was heard for 2.0 s"))
        assert patience.pause_s(LinkLost("forgotten"), True) is not None
    assert caplog.messages == ["link lost, retrying for 5 s: nothing was heard for 2.0 s"]
    patience.went_on()
    with caplog.at_level(logging.WARNING):
        patience.pause_s(LinkLost("again"), False)
    assert len(caplog.messages) == 2


def test_every_program_that_answers_tries_for_the_same_time() -> None:
    from spec_vlm_nav.deciding.parameters import VLM_NAV
    from spec_vlm_nav.model.decider import DecoderSettings
    from specnav.api.config import ApiConfig
    from specnav.generate import GenerateConfig

    (parameter,) = [one for one in VLM_NAV if one.name == "resume_timeout_s"]
    given = ApiConfig("tcp://x:1").patience_s, GenerateConfig("x").patience_s, DecoderSettings().resume_timeout_s
    assert {*given, parameter.default} == {RESUME_TIMEOUT_S}


def test_it_is_said_once_until_an_answer_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    patience = Patience(5.0, clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):  # answers that all fail
            patience.begin()
            pauses(patience, clock, BUSY)
        assert len(caplog.records) == 1
        patience.went_on()
        pauses(patience, clock, BUSY)
        assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (wire.ERROR_BUSY, VerifierBusy),
        (wire.ERROR_TOO_LARGE, OptionsError),
        (wire.ERROR_REFUSED, RequestRefused),
        (wire.ERROR_MALFORMED, ProtocolError),
    ],
)
def test_refusals_are_the_errors_that_say_what_to_do(code: str, error: type[Exception]) -> None:
    assert type(refusal(wire.ErrorDown(1, code, "4 are allowed"), "tcp://x:1")) is error


class Wire(Link):
    """Counts what is sent."""

    def __init__(self) -> None:
        super().__init__("tcp://127.0.0.1:9", 1.0, 2.0, 60.0)
        self.sent: list[wire.Up] = []

    def send(self, message: wire.Up) -> int:
        self.sent.append(message)
        return 0


@pytest.mark.parametrize(("timeout_s", "pings"), [(2.0, 40), (120.0, 2), (0.0, 2)])
def test_an_edge_that_only_listens_says_often_enough_that_it_lives(timeout_s: float, pings: int) -> None:
    link = Wire()
    heartbeat = Heartbeat(link)
    heartbeat.restart(0.0, timeout_s)
    for tenth in range(1, 205):  # no Pong ever comes back: the pings go on all the same
        heartbeat.keep_alive(tenth / 10, 1, 0)
    assert pings <= len(link.sent) + 7 and len(link.sent) <= pings + 1


def test_a_late_pong_is_not_taken_for_that_of_a_later_ping() -> None:
    link = Wire()
    heartbeat = Heartbeat(link)
    heartbeat.restart(0.0)
    for twentieth in range(1, 25):  # a link of 0.7 s, asked at 0.5 s
        heartbeat.mind(twentieth / 20, 1, 3)
    assert heartbeat.answered() == (0.5, 3)


def alive_until(heartbeat: Heartbeat, began: int, longest: int) -> int | None:
    """When a heartbeat gives up on a verifier that answers all pings and nothing else; None: not by `longest`."""
    for now in range(began, longest):
        heartbeat.heard(float(now))
        try:
            heartbeat.mind(float(now), 1, 0)
        except LinkLost as error:
            assert "the verifier is alive, but this answer made no progress for" in str(error)
            return now
    return None


@pytest.mark.parametrize(("prompt_tokens", "longest"), [(0, 61), (30, 64), (2000, 261), (10**6, 661)])
def test_a_verifier_that_lives_may_take_longer_over_a_long_prompt_but_not_for_ever(
    prompt_tokens: int, longest: int
) -> None:
    heartbeat = Heartbeat(Wire())
    heartbeat.restart(0.0, 120.0, prompt_tokens)
    assert alive_until(heartbeat, 1, 2000) == longest
    heartbeat.restart(0.0, 120.0, prompt_tokens)
    heartbeat.opened()
    heartbeat.progressed(50.0)
    assert alive_until(heartbeat, 51, 2000) == 111  # a round has no prompt


def test_a_verifier_that_is_silent_is_lost_however_long_the_prompt() -> None:
    heartbeat = Heartbeat(Wire())
    heartbeat.restart(0.0, 120.0, 10**6)
    with pytest.raises(LinkLost, match=r"nothing was heard for 2\.5 s"):
        heartbeat.mind(2.5, 1, 0)
