"""A target that changes under its draft: no answer is of two targets, what was measured is forgotten."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch

from cloud_verifier.engine.engine import Engine
from cloud_verifier.engine.interface import EngineEnvironment
from cloud_verifier.engine.work import Models
from cloud_verifier.logs import EventLog
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import ProtocolError, TargetChanged
from specdec.estimates.measured import Measured
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import ERROR_TARGET, ErrorDown, Open, Welcome
from specdec.models import chat_prompt, load_model
from specdec.models.digest import files_digest, weights_digest
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.verdict_log import VerdictLog, read_verdicts
from tests.helpers.servers import Pair, RunningServer, patiently_connected
from tests.helpers.table_models import PROMPT, TablePair, endless, table_pair
from tests.helpers.tuned import tuned
from tests.specdec.checks import Unhurried, greedy_reference
from tests.specdec.wired import WiredLink

LIMIT = 40
METHODS = ["ar", "sd", "dssd", "picospec", "fsd", "auto", "specedge", "pipesd", "ngram", "cloud-sd"]
OLD, NEW = endless(table_pair(vocab=5, unlikeness=0.7)), endless(table_pair(vocab=5, unlikeness=0.7, seed=9))
StartServer = Callable[..., RunningServer]


class Restarted(WiredLink):
    """A verifier that comes back with another target when the link was lost. tells: whether it says which it has."""

    def __init__(self, pair: TablePair, other: TablePair, cut: int, tells: bool = True, renamed: bool = False) -> None:
        super().__init__(pair.target, pair.draft, cuts=(cut,))
        self._other, self._tells, self._renamed, self._changed = other, tells, renamed, False

    def reset(self) -> None:
        super().reset()
        if not self._changed:
            self._changed = True
            self.target = self._other.target
            environment = EngineEnvironment(self._reply, EventLog(self._log))
            self._engine = Engine(Models(self.target, self._other.draft), environment)

    def ensure_connected(self, *others: object) -> Welcome:
        welcome = super().ensure_connected()
        name = welcome.model + (" (fine-tuned)" if self._changed and self._renamed else "")
        weights = (b"new" if self._changed else b"old") if self._tells else b""
        return msgspec.structs.replace(welcome, weights=weights, model=name)


def ask(decoder: EdgeDecoder, given: list[int]) -> list[int]:
    for chunk in decoder.generate(PROMPT, GenerationOptions(LIMIT), Unhurried()):
        given += chunk
    return given


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cut", [1, 2, 4])
def test_an_answer_is_of_one_target_whenever_the_other_comes(
    caplog: pytest.LogCaptureFixture, method: str, cut: int
) -> None:
    before, after = (greedy_reference(pair.target, PROMPT, LIMIT) for pair in (OLD, NEW))
    link = Restarted(OLD, NEW, cut)
    decoder = EdgeDecoder(link, OLD.draft, method, gamma=2, resume_timeout_s=60.0)
    given: list[int] = []
    with caplog.at_level(logging.WARNING):
        try:
            ask(decoder, given)
        except TargetChanged as error:
            assert given and given == before[: len(given)]
            assert "changed in the middle of an answer" in str(error) and "\n" not in str(error)
        else:
            assert given == after, "nothing was given out yet"
    assert link._changed
    assert sum("another target" in record.getMessage() for record in caplog.records) == 1
    assert ask(EdgeDecoder(link, OLD.draft, method, gamma=2, resume_timeout_s=60.0), []) == after


def test_an_answer_that_was_broken_off_is_not_carried_on_by_another_target() -> None:
    """A robot hands in what was verified as the history of the next call."""
    link = Restarted(OLD, NEW, cut=3)
    decoder = EdgeDecoder(link, OLD.draft, "ngram", resume_timeout_s=60.0)
    given: list[int] = []
    for _ in range(3):
        with pytest.raises(TargetChanged):
            for chunk in decoder.generate(PROMPT, GenerationOptions(LIMIT), Unhurried(), given):
                given += chunk
    assert given and ask(decoder, []) == greedy_reference(NEW.target, PROMPT, LIMIT)


@pytest.mark.parametrize("method", ["sd", "ar"])
def test_a_verifier_that_tells_no_weights_is_known_by_its_name(method: str) -> None:
    decoder = EdgeDecoder(
        Restarted(OLD, NEW, 3, tells=False, renamed=True), OLD.draft, method, gamma=2, resume_timeout_s=60.0
    )
    with pytest.raises(TargetChanged):
        ask(decoder, [])
    same = EdgeDecoder(Restarted(OLD, OLD, 3, tells=False), OLD.draft, method, gamma=2, resume_timeout_s=60.0)
    assert ask(same, []) == greedy_reference(OLD.target, PROMPT, LIMIT)


def test_what_was_measured_of_the_old_target_counts_no_more_and_the_draft_is_still_known() -> None:
    figures = Measured()
    for _ in range(30):
        figures.drafted(0.01)
        figures.exchanged(5, 0.2, 0.03)
        figures.chain.add(4, 4)
        figures.kept.add(2.0)
    figures.forget_target()
    assert figures.draft_s == 0.01 and figures.rtt_s == 0.03
    assert figures.verify_s is None and figures.chain.drafts == 0 and figures.kept.value == 1.0
    assert figures.chain.chance(0) == pytest.approx(0.7)


def test_weights_are_told_apart_by_any_number_and_equal_when_loaded_again(text_pair: Pair, tmp_path: object) -> None:
    whole = text_pair.target.weights_digest
    again = load_model(text_pair.target.path)
    assert again.weights_digest == whole != text_pair.draft.weights_digest
    network = copy.deepcopy(again.network)
    weight = dict(network.named_parameters())["model.layers.0.self_attn.o_proj.weight"]
    with torch.no_grad():
        weight[7, 3] = torch.nextafter(weight[7, 3], torch.tensor(9.0))
    assert weights_digest(network) != whole
    with torch.no_grad():
        weight[7, 3] = torch.nextafter(weight[7, 3], torch.tensor(-9.0))
        assert weights_digest(network) == whole
        weight[[0, 1]] = weight[[1, 0]]
    assert weights_digest(network) != whole


def test_weights_that_nobody_loads_are_told_apart_by_their_files(model_root, tmp_path) -> None:  # type: ignore[no-untyped-def]
    first = files_digest(model_root / "text-target")
    assert first and first == files_digest(model_root / "text-target") != files_digest(model_root / "text-draft")
    assert files_digest(tmp_path) == files_digest(tmp_path / "none") == b""


@pytest.mark.slow
def test_a_verifier_that_restarts_with_a_tuned_target_between_answers_is_noticed(
    text_pair: Pair, start_server: StartServer, tmp_path: Path
) -> None:
    prompt, options = chat_prompt(text_pair.target, "say something"), GenerationOptions(12)
    first, other = start_server(text_pair.target), load_model(tuned(text_pair.target.path, tmp_path / "tuned"))
    expected = [generate_local(model, prompt, options) for model in (text_pair.target, other)]
    assert expected[0] != expected[1], "the tuned target says something else"
    log = VerdictLog(tmp_path / "log")
    with patiently_connected(first.address) as link:
        decoder = EdgeDecoder(link, text_pair.draft, "sd", 3, verdict_log=log, resume_timeout_s=60.0)
        assert [t for c in decoder.generate(prompt, options) for t in c] == expected[0]
        address = first.address
        first.stop()
        start_server(other, bind=address)
        assert [t for c in decoder.generate(prompt, options) for t in c] == expected[1]
    log.close()
    old, new = read_verdicts(tmp_path / "log")
    assert (old.target, new.target) == (text_pair.target.weights_digest, other.weights_digest)


def test_an_answer_of_another_target_is_refused(text_pair: Pair, start_server: StartServer) -> None:
    server = start_server(text_pair.target)
    with patiently_connected(server.address) as link:
        welcome = link.ensure_connected()
        assert welcome.weights == text_pair.target.weights_digest
        for weights, refused in ((b"another", True), (welcome.weights, False), (b"", False)):
            link.send(Open(3, True, sampling_to_wire(GenerationOptions(4)), [1, 2], weights=weights))
            received = link.receive(30.0)
            assert received is not None
            assert (isinstance(received[0], ErrorDown) and received[0].code == ERROR_TARGET) == refused


@pytest.mark.slow
def test_an_edge_that_has_greeted_an_earlier_verifier_greets_again(
    text_pair: Pair, start_server: StartServer
) -> None:
    """A socket connects again by itself: the greeting may be of a verifier that is gone."""
    prompt, options = chat_prompt(text_pair.target, "say something"), GenerationOptions(12)
    server = start_server(text_pair.target)
    with patiently_connected(server.address) as link:
        decoder = EdgeDecoder(link, text_pair.draft, "sd", 3)
        link._welcome = msgspec.structs.replace(link.ensure_connected(), weights=b"of before")
        assert [t for c in decoder.generate(prompt, options) for t in c] == generate_local(
            text_pair.target, prompt, options
        )
        link.ensure_connected = lambda *others: msgspec.structs.replace(  # type: ignore[method-assign]
            type(link).ensure_connected(link, *others), weights=b"something else each time"
        )
        with pytest.raises(ProtocolError, match="greetings contradict its replies"):
            list(decoder.generate(prompt, options))


@pytest.mark.slow
def test_a_greeting_finds_the_digest_of_the_weights_ready(
    text_pair: Pair, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large weights it takes seconds, and greetings are answered by the thread that serves everyone."""
    vars(text_pair.target).pop("weights_digest", None)
    server = start_server(text_pair.target)
    monkeypatch.setattr("specdec.models.loaded.weights_digest", lambda network: pytest.fail("too late"))
    assert "weights_digest" in vars(text_pair.target)
    with patiently_connected(server.address) as link:
        assert link.ensure_connected().weights == text_pair.target.weights_digest


@pytest.mark.parametrize("history", [(), (1,)])
def test_a_fleet_hears_when_an_answer_has_begun(monkeypatch: pytest.MonkeyPatch, history: tuple[int, ...]) -> None:
    link, told = WiredLink(OLD.target, OLD.draft), []
    monkeypatch.setattr(link, "answer_began", lambda: told.append(link._sessions))
    decoder = EdgeDecoder(link, OLD.draft, "sd")
    next(decoder.generate(PROMPT, GenerationOptions(8), history=history))
    assert told == ([0, 1] if history else [1])
