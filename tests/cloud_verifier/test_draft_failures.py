"""Draft models that fail, on either side, and contexts that are too short for them."""

from __future__ import annotations

import pytest

from specdec.edge.decoder import EdgeDecoder
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.cloud_verifier.raw_client import events
from tests.helpers.servers import Pair, RunningServer, StartServer, patiently_connected

pytestmark = [pytest.mark.realtime, pytest.mark.slow]
OPTIONS = GenerationOptions(24)


@pytest.fixture
def paired(text_pair: Pair, start_server: StartServer) -> RunningServer:
    return start_server(text_pair.target, draft_model=text_pair.draft)


class TestDraftModels:
    """A draft model that dies, or whose context is too short, means `ar` for the rest."""

    @pytest.mark.parametrize("dies_after", [0, 30])
    def test_of_the_cloud_that_dies(
        self, text_pair: Pair, paired: RunningServer, dies_after: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        prompt = chat_prompt(text_pair.target, "cloud")
        kill(text_pair.draft, dies_after, monkeypatch)
        self._is_right(text_pair, paired, "cloud-sd", prompt)
        assert len(events(paired, "draft_failed")) == 1
        assert not events(paired, "session_failed")

    def test_of_the_cloud_with_too_short_a_context(
        self, text_pair: Pair, paired: RunningServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(text_pair.draft, "context_limit", 8)
        self._is_right(text_pair, paired, "cloud-sd", chat_prompt(text_pair.target, "longer than eight"))
        assert len(events(paired, "draft_failed")) == 1

    @pytest.mark.parametrize(
        ("method", "dies_after"),
        [("sd", 0), ("sd", 7), ("fsd", 0), ("auto", 7), ("dsd", 0), ("sd+overlap:stream", 7), ("sd+tree:8x3", 7)],
    )
    def test_of_the_edge_that_dies(
        self,
        text_pair: Pair,
        start_server: StartServer,
        method: str,
        dies_after: int,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        server = start_server(text_pair.target)
        kill(text_pair.draft, dies_after, monkeypatch)
        self._is_right(text_pair, server, method, chat_prompt(text_pair.target, "edge"))
        said = [record.getMessage() for record in caplog.records if "draft" in record.getMessage()]
        if method != "auto" or said:  # which may not need its draft model
            assert said == [
                "the draft model has failed (the draft model is dead): the verifier continues alone"
            ]

    @pytest.mark.parametrize("method", ["sd", "auto", "sd+overlap:stream"])
    @pytest.mark.parametrize("context", [8, 30])
    def test_of_the_edge_with_too_short_a_context(
        self,
        text_pair: Pair,
        start_server: StartServer,
        method: str,
        context: int,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        server = start_server(text_pair.target)
        monkeypatch.setattr(text_pair.draft, "context_limit", context)
        self._is_right(text_pair, server, method, chat_prompt(text_pair.target, "longer than eight"))
        assert sum("context" in record.getMessage() for record in caplog.records) == 1

    def _is_right(self, pair: Pair, server: RunningServer, method: str, prompt: Prompt) -> None:
        with patiently_connected(server.address) as link:
            decoder = EdgeDecoder(link, pair.draft, method)
            got = [token for chunk in decoder.generate(prompt, OPTIONS) for token in chunk]
        assert got == generate_local(pair.target, prompt, OPTIONS)


def kill(model: LoadedModel, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its so-manyth forward on, a model fails."""
    original, forwards = model.runner.forward, 0

    def forward(*arguments: object, **settings: object) -> object:
        nonlocal forwards
        forwards += 1
        if forwards > after:
            raise RuntimeError("the draft model is dead")
        return original(*arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(model.runner, "forward", forward)
