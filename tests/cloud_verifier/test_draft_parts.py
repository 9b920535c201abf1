"""Parts of drafts at the verifier: put together in order, bounded, and never a reason to end anybody else's answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloud_verifier.net import parts as parts_module
from cloud_verifier.net.parts import (
    MOST_PARTS,
    PATIENCE_S,
    DraftParts,
    PartsBroken,
    PartsTooLarge,
    PartTwice,
)
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.link import wire
from specdec.models import chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.cloud_verifier.raw_client import RawClient, events, open_message, still_works
from tests.helpers.servers import Pair, RunningServer, StartServer

TOKENS, BYTES = 64, 1000


def sampled(
    place: int, ids: list[int], q: bytes = b"", *, base: int, round_: int = 2, **more: int
) -> wire.PartUp:
    """A part of a draft that others follow."""
    return wire.PartUp(place, True, wire.SampledUp(1, round_, base, ids, q, **more))


class TestOneDraft:
    """Parts of a draft of one session, one after the other."""

    def test_it_is_the_draft_that_would_have_come_whole(self) -> None:
        parts = DraftParts()
        parts.add(sampled(0, [1], b"a", base=7, fix=9, epoch=3), 0.0, TOKENS, BYTES)
        parts.add(sampled(1, [2, 3], b"bc", base=8, epoch=3), 0.0, TOKENS, BYTES)
        parts.add(sampled(2, [], b"", base=10, epoch=3), 0.0, TOKENS, BYTES)
        assert parts.whole() == wire.SampledUp(1, 2, 7, [1, 2, 3], b"abc", 9, 3)
        assert not parts.held

    @pytest.mark.parametrize(
        "second",
        [
            sampled(2, [2], base=8),
            sampled(1, [2], base=9),
            sampled(1, [2], base=8, epoch=1),
            sampled(1, [2], base=8, fix=4),
            wire.PartUp(1, True, wire.DraftUp(1, 2, 8, [2])),
            sampled(1, [2], base=8, round_=3),
        ],
    )
    def test_what_does_not_follow_breaks_it(self, second: wire.PartUp) -> None:
        parts = DraftParts()
        parts.add(sampled(0, [1], base=7), 0.0, TOKENS, BYTES)
        with pytest.raises(PartsBroken) as raised:
            parts.add(second, 0.0, TOKENS, BYTES)
        assert "\n" not in str(raised.value)

    def test_a_tree_does_not_come_in_parts(self) -> None:
        with pytest.raises(PartsBroken, match="only chains"):
            DraftParts().add(wire.PartUp(0, True, wire.DraftUp(1, 2, 0, [2], [-1])), 0.0, TOKENS, BYTES)

    def test_what_comes_again_is_known_to_have_come(self) -> None:
        parts, first = DraftParts(), sampled(0, [1], base=7)
        parts.add(first, 0.0, TOKENS, BYTES)
        with pytest.raises(PartTwice, match="part 0 of draft 2 came twice"):
            parts.add(first, 0.0, TOKENS, BYTES)
        parts.whole()
        with pytest.raises(PartTwice, match="after that draft was complete"):
            parts.add(first, 0.0, TOKENS, BYTES)

    def test_a_later_round_takes_the_place_of_a_draft_that_was_given_up(self) -> None:
        parts = DraftParts()
        parts.add(sampled(0, [1], base=7), 0.0, TOKENS, BYTES)
        assert not parts.superseded_by(2) and parts.superseded_by(3)
        assert [one.ids for one in parts.drop()] == [[1]]
        parts.add(sampled(0, [5], base=7, round_=3), 0.0, TOKENS, BYTES)
        assert parts.whole().ids == [5]

    def test_its_tokens_bytes_and_parts_are_bounded(self) -> None:
        for most_tokens, most_bytes, what in ((3, BYTES, "4 tokens"), (TOKENS, 7, "8 bytes")):
            parts = DraftParts()
            parts.add(sampled(0, [1, 2], b"1234", base=0), 0.0, most_tokens, most_bytes)
            with pytest.raises(PartsTooLarge, match=what):
                parts.add(sampled(1, [1, 2], b"1234", base=2), 0.0, most_tokens, most_bytes)
            parts.drop()
            with pytest.raises(PartTwice):
                parts.add(sampled(2, [1], b"1", base=4), 0.0, most_tokens, most_bytes)
        parts = DraftParts()
        for place in range(MOST_PARTS):
            parts.add(sampled(place, [], base=0), 0.0, TOKENS, BYTES)
        with pytest.raises(PartsTooLarge, match=f"more than {MOST_PARTS} parts"):
            parts.add(sampled(MOST_PARTS, [], base=0), 0.0, TOKENS, BYTES)

    def test_it_is_late_where_nothing_has_come_for_long(self) -> None:
        parts = DraftParts()
        assert not parts.is_late(1e9)
        parts.add(sampled(0, [1], base=0), 5.0, TOKENS, BYTES)
        assert not parts.is_late(5.0 + PATIENCE_S) and parts.is_late(5.1 + PATIENCE_S)


@pytest.fixture
def opened(server: RunningServer) -> Iterator[tuple[RawClient, list[int]]]:
    """A client with session 1 open, and the answer's first tokens."""
    client = RawClient(server.address)
    first = client.ask(open_message(1, [1, 2, 3]))
    assert isinstance(first, wire.Opened) and first.token is not None
    client.send(wire.DraftUp(1, 1, 1, []))
    verdict = client.receive()
    assert isinstance(verdict, wire.VerdictDown)
    yield client, [first.token]
    client.close()


def waiting(server: RunningServer) -> int:
    """Bytes that are counted as waiting."""
    return server.server._admission.ledger.queued_bytes


@pytest.mark.realtime
@pytest.mark.slow
class TestAtTheSocket:
    """A client that sends what it likes."""

    def test_parts_are_judged_once_as_one_draft_and_leave_nothing_behind(
        self, text_pair: Pair, server: RunningServer
    ) -> None:
        right = generate_local(text_pair.target, chat_prompt(text_pair.target, "x"), GenerationOptions(24))
        prompt = list(chat_prompt(text_pair.target, "x").ids)
        client = RawClient(server.address)
        first = client.ask(open_message(1, prompt))
        assert isinstance(first, wire.Opened) and first.token == right[0]
        for place, token in enumerate(right[1:5]):
            client.send(wire.PartUp(place, True, wire.DraftUp(1, 1, 1 + place, [token])))
        assert client.ask(wire.Ping(1)) == wire.Pong(1, 0, 0)
        assert waiting(server) > 0
        verdict = client.ask(wire.PartUp(4, False, wire.DraftUp(1, 1, 5, [])))
        assert isinstance(verdict, wire.VerdictDown)
        assert (verdict.round, verdict.last, verdict.token) == (1, 4, right[5])
        assert client.ask(wire.Ping(1)) == wire.Pong(1, 1, 1)
        assert waiting(server) == 0
        client.send(wire.PartUp(4, False, wire.DraftUp(1, 1, 5, [])))
        assert client.ask(wire.Ping(1)) == wire.Pong(1, 1, 1)
        assert len(events(server, "part_ignored")) == 1
        client.close()

    @pytest.mark.parametrize("place", [1, 5])
    def test_a_gap_ends_the_session_with_one_line_and_nobody_elses(
        self, text_pair: Pair, server: RunningServer, opened: tuple[RawClient, list[int]], place: int
    ) -> None:
        client, _ = opened
        reply = client.ask(wire.PartUp(place, False, wire.DraftUp(1, 2, 2 + place, [1])))
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_UNKNOWN_SESSION
        assert f"part {place} of draft 2 came where part 0 was due" in reply.message
        assert len(events(server, "unknown_session")) == 1 and waiting(server) == 0
        still_works(text_pair, server)

    def test_a_draft_that_is_too_large_is_refused_and_the_session_stays(
        self, server: RunningServer, opened: tuple[RawClient, list[int]]
    ) -> None:
        client, _ = opened
        client.send(wire.PartUp(0, True, wire.DraftUp(1, 2, 2, [1] * 300)))
        reply = client.ask(wire.PartUp(1, True, wire.DraftUp(1, 2, 302, [1] * 300)))
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_TOO_LARGE
        assert waiting(server) == 0
        verdict = client.ask(wire.DraftUp(1, 3, 2, [1]))
        assert isinstance(verdict, wire.VerdictDown) and verdict.round == 3

    def test_a_draft_that_is_given_up_gives_its_room_back(
        self, server: RunningServer, opened: tuple[RawClient, list[int]]
    ) -> None:
        client, _ = opened
        client.send(wire.PartUp(0, True, wire.DraftUp(1, 2, 2, [1] * 300)))
        verdict = client.ask(wire.DraftUp(1, 3, 2, [1]))
        assert isinstance(verdict, wire.VerdictDown) and waiting(server) == 0
        client.send(wire.PartUp(0, True, wire.DraftUp(1, 4, 3, [1] * 300)))
        client.send(wire.Close(1))
        client.ask(wire.Ping(0))
        assert waiting(server) == 0

    def test_a_peer_that_never_says_last_is_waited_for_so_long_and_no_longer(
        self, server: RunningServer, opened: tuple[RawClient, list[int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(parts_module, "PATIENCE_S", 0.2)
        client, _ = opened
        client.send(wire.PartUp(0, True, wire.DraftUp(1, 2, 2, [1])))
        reply = client.receive(10.0)
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_UNKNOWN_SESSION
        assert "did not come within" in reply.message
        client.ask(wire.Ping(0))
        assert waiting(server) == 0

    def test_an_answer_by_the_plan_over_a_real_socket_is_the_targets(
        self, text_pair: Pair, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from specdec.drafting.uploads import UploadPlan
        from specdec.estimates.uplink import Uplink

        monkeypatch.setattr(Uplink, "token_s", 1.0)
        monkeypatch.setattr(UploadPlan, "due", lambda self, drafted, *about: drafted)
        server = start_server(text_pair.target)
        prompt = chat_prompt(text_pair.target, "parts")
        with connect(server.address) as link:
            for method in ("sd+leave:plan", "pipesd"):
                decoder = EdgeDecoder(link, text_pair.draft, method)
                got = [token for chunk in decoder.generate(prompt, GenerationOptions(24)) for token in chunk]
                assert got == generate_local(text_pair.target, prompt, GenerationOptions(24))
                assert decoder.stats.resumes == 0
