"""Hints on their way out: before the verdict, in the order asked for, only to those who want them, never in its way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import torch

from cloud_verifier.config import NO_EXITS, ServerConfig
from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.hints import BY_CONFIDENCE, FIRST_COME, HintQueue, HintShare
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.work import Models
from cloud_verifier.errors import VerifierError
from cloud_verifier.loading import load_hint_maker
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from cloud_verifier.observing.counts import Histogram
from specdec.errors import ModelError, OptionsError
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import Down, DraftUp, ErrorDown, HintDown, Open, Opened, VerdictDown
from specdec.models import Prompt, chat_prompt
from specdec.options import GenerationOptions
from specdec.sampling.recoveries import Recovery
from specdec.verifying.exits import save_exits
from specdec.verifying.hints.hints import DraftHints, ExitOutcome, HintMaker
from tests.cloud_verifier.hinting import Cloud, hints_of, make_exits, plain, rounds
from tests.helpers.servers import Pair, patiently_connected
from tests.helpers.waiting import Clock


def test_hints_come_before_the_verdict_and_change_nothing_about_it(pair: Pair) -> None:
    without = rounds(Cloud(pair.target, None), 1)
    unwanted = rounds(Cloud(pair.target, HintMaker(make_exits(pair.target))), 1)
    wanted = rounds(Cloud(pair.target, HintMaker(make_exits(pair.target))), 1, hints=8)
    assert not hints_of(without) and not hints_of(unwanted)
    assert plain(without) == plain(unwanted) == plain(wanted)
    assert hints_of(wanted)
    for number in range(1, 6):
        of_round = [m for m in wanted if getattr(m, "round", 0) == number]
        assert isinstance(of_round[-1], VerdictDown) and all(isinstance(m, HintDown) for m in of_round[:-1])
        keys = [(hint.last, hint.token) for hint in hints_of(of_round)]
        assert len(set(keys)) == len(keys) <= 8
        times = [hint.at_us for hint in hints_of(of_round)]
        assert times == sorted(times) and times[-1] <= of_round[-1].verify_us


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_hints_a_round_than_were_asked_for(text_pair: Pair, limit: int) -> None:
    said = hints_of(rounds(Cloud(text_pair.target, HintMaker(make_exits(text_pair.target))), 1, hints=limit))
    for number in range(1, 6):
        assert 1 <= sum(hint.round == number for hint in said) <= limit


def test_there_are_no_hints_for_rejection_sampling(text_pair: Pair) -> None:
    cloud = Cloud(text_pair.target, HintMaker(make_exits(text_pair.target)))
    options = GenerationOptions(20, temperature=1.0)
    cloud.open(1, options=options, hints=8, recovery=int(Recovery.ROW))
    assert cloud.engine._sessions[next(iter(cloud.engine._sessions))]._hinting is None


def test_a_verdict_that_is_known_in_part_has_no_hints(text_pair: Pair) -> None:
    cloud = Cloud(text_pair.target, HintMaker(make_exits(text_pair.target)))
    cloud.open(1, hints=8)
    first = cloud.said[-1]
    assert isinstance(first, Opened) and first.token is not None
    said = cloud.judge(DraftUp(1, 1, 0, [first.token, 5, 6]))
    assert len(said) == 1 and isinstance(said[0], VerdictDown)


def test_hints_speak_of_the_draft_as_it_was_sent(vision_pair: Pair) -> None:
    """A node that stands for a picture, and what is behind it, is not fed to the target; others keep their numbers."""
    model = vision_pair.target
    cloud = Cloud(model, HintMaker(make_exits(model)))
    cloud.open(1, hints=64)
    picture = min(model.never_drafted)
    said = hints_of(cloud.judge(DraftUp(1, 1, 1, [picture, 5, 6, 7], [-1, 0, -1, 2])))
    assert said and {hint.last for hint in said} <= {0, 3, 4}


def test_sessions_do_not_hear_of_each_other(text_pair: Pair) -> None:
    maker = HintMaker(make_exits(text_pair.target))

    def told(cloud: Cloud, session: int) -> list[tuple[int, int, float]]:
        return [
            (hint.last, hint.token, hint.confidence)
            for hint in hints_of(cloud.said)
            if hint.session == session
        ]

    drafts = {session: DraftUp(session, 1, 1, [session, 3, 4]) for session in (1, 2, 3)}
    together = Cloud(text_pair.target, maker)
    for session in drafts:
        together.open(session, f"question {session}", hints=8 * (session != 3))
    for draft in drafts.values():
        assert {getattr(message, "session", 0) for message in together.judge(draft)} == {draft.session}
    for session, draft in drafts.items():
        alone = Cloud(text_pair.target, HintMaker(make_exits(text_pair.target)))
        alone.open(session, f"question {session}", hints=8 * (session != 3))
        alone.judge(draft)
        assert told(alone, session) == told(together, session)
    assert not told(together, 3)


@pytest.mark.parametrize("failing", ["session", "after"])
def test_exits_that_fail_take_only_the_hints_with_them(
    text_pair: Pair, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("an exit is broken")

    expected = plain(rounds(Cloud(text_pair.target, None), 1))
    cloud = Cloud(text_pair.target, HintMaker(make_exits(text_pair.target)))
    monkeypatch.setattr(HintMaker if failing == "session" else DraftHints, failing, fail)
    said = rounds(cloud, 1, hints=8)
    assert plain(said) == expected and not hints_of(said)
    assert cloud.log.getvalue().count("hints_failed") == 1 and "an exit is broken" in cloud.log.getvalue()


def outcome(last: int, confidence: float, layer: int = 0, token: int = 7) -> ExitOutcome:
    return ExitOutcome(last, token, confidence, layer)


class TestQueue:
    @pytest.mark.parametrize(("order", "lasts"), [(BY_CONFIDENCE, [2, 1, 3]), (FIRST_COME, [1, 2, 3])])
    def test_the_order_is_the_one_asked_for(self, order: int, lasts: list[int]) -> None:
        queue = HintQueue(8, order)
        queue.put([outcome(1, 0.5), outcome(2, 0.9)])
        queue.put([outcome(3, 0.1)])
        assert [hint.last for _ in range(2) for hint in queue.take(2)] == lasts

    @pytest.mark.parametrize("order", [BY_CONFIDENCE, FIRST_COME])
    def test_none_is_sent_twice_and_a_later_exit_knows_better(self, order: int) -> None:
        queue = HintQueue(8, order)
        queue.put([outcome(1, 0.5)])
        assert queue.take(2) == [outcome(1, 0.5)]
        queue.put([outcome(1, 0.9, 3), outcome(2, 0.2)])
        queue.put([outcome(2, 0.4, 3)])
        assert queue.take(2) == [outcome(2, 0.4, 3)] and queue.take(2) == []

    def test_the_limit_holds_for_the_round(self) -> None:
        queue = HintQueue(3, BY_CONFIDENCE)
        for last in range(9):
            queue.put([outcome(last, 0.5)])
        assert [len(queue.take(2)) for _ in range(4)] == [2, 1, 0, 0]


class TestLoading:
    @pytest.fixture
    def beside(self, text_pair: Pair, tmp_path: Path) -> Callable[[str], ServerConfig]:
        """Settings of a target that has exits beside it."""
        (tmp_path / "my-target").symlink_to(text_pair.target.path)
        (tmp_path / "my-exits").mkdir()
        save_exits(tmp_path / "my-exits", make_exits(text_pair.target))
        return lambda exits: ServerConfig(model=str(tmp_path / "my-target"), exits=exits)

    def test_a_named_folder_is_taken(self, text_pair: Pair, beside: Callable[[str], ServerConfig]) -> None:
        folder = str(Path(beside("").model).with_name("my-exits"))
        maker = load_hint_maker(beside(folder), text_pair.target, EventLog(StringIO()))
        assert maker is not None and maker.layers == (0,)
        assert load_hint_maker(beside(NO_EXITS), text_pair.target, EventLog(StringIO())) is None

    def test_what_lies_beside_the_model_is_taken_where_nothing_is_said(
        self, text_pair: Pair, vision_pair: Pair, beside: Callable[[str], ServerConfig], tmp_path: Path
    ) -> None:
        log = StringIO()
        assert load_hint_maker(beside(""), text_pair.target, EventLog(log)) is not None
        assert load_hint_maker(beside(""), vision_pair.target, EventLog(log)) is None
        assert "exits_left_alone" in log.getvalue()
        (tmp_path / "my-exits").rename(tmp_path / "other")
        assert load_hint_maker(beside(""), text_pair.target, EventLog(log)) is None

    def test_mistakes_are_one_line(
        self, text_pair: Pair, vision_pair: Pair, beside: Callable[[str], ServerConfig]
    ) -> None:
        log = EventLog(StringIO())
        folder = str(Path(beside("").model).with_name("my-exits"))
        for config, model in ((beside("/nowhere"), text_pair.target), (beside(folder), vision_pair.target)):
            with pytest.raises(ModelError) as error:
                load_hint_maker(config, model, log)
            assert "\n" not in str(error.value)
        for layers in ("2", "soon"):
            config = ServerConfig(model=text_pair.target.path, exits=folder, exit_layers=layers)
            with pytest.raises(OptionsError):
                load_hint_maker(config, text_pair.target, log)
        with pytest.raises(VerifierError, match="exit_layers"):
            ServerConfig(model="m", exit_layers=[1, 3])  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("inline", [True, False])
def test_hints_come_over_a_real_socket_before_their_verdict(text_pair: Pair, inline: bool) -> None:
    model = text_pair.target
    server = Server(
        ServerConfig(model=model.path, bind="tcp://127.0.0.1:0"),
        model,
        EventLog(StringIO()),
        own_engine(Policy(), Models(model, hint_maker=HintMaker(make_exits(model)))),
        inline=inline,
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    prompt = Prompt(chat_prompt(model, "hello").ids)
    try:
        with patiently_connected(server.bind) as link:
            welcome = link.ensure_connected()
            assert welcome.exits == [0, 1] and not welcome.drafts
            link.send(Open(1, False, sampling_to_wire(GenerationOptions(30)), list(prompt.ids), hints=4))
            link.send(DraftUp(1, 1, 1, [3, 4, 5, 6]))
            said: list[Down] = []
            while not said or not isinstance(said[-1], (VerdictDown, ErrorDown)):
                received = link.receive(5.0)
                assert received is not None
                said.append(received[0])
    finally:
        server.stop()
        thread.join(timeout=10)
    assert isinstance(said[0], Opened) and isinstance(said[-1], VerdictDown)
    assert 1 <= len(hints_of(said)) <= 4 and len(said) == len(hints_of(said)) + 2


def test_in_shared_forwards_hints_take_no_more_than_their_share() -> None:
    clock = Clock()
    share = HintShare(clock, Histogram((0.001,)))

    def hints(layer: int, hidden: torch.Tensor) -> None:
        clock.now += 0.0005

    def forward(seconds: float, observed: int) -> None:
        began = clock.now
        for _ in range(observed):
            for layer in (0, 1):
                share.timed(hints)(layer, torch.empty(0))
        clock.now = began + seconds + 0.001 * observed
        share.ran(clock.now - began, observed)

    assert share.allowed(8) == 1, "what they cost is not known yet"
    forward(0.040, 1)
    assert share.allowed(8) == 2 and share.allowed(1) == 1
    for _ in range(60):
        forward(0.0025, 1)
    assert share.allowed(8) == 0 and share.allowed(1) == 1, "they would make every client wait"
