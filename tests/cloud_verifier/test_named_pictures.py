"""Pictures that are named instead of sent again: right answers whatever is lost, and no other client's pictures."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from cloud_verifier.limits import Limits
from cloud_verifier.net.clients import Clients
from cloud_verifier.net.pictures import PictureCache
from cloud_verifier.security.records import ClientKey
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import ProtocolError
from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.link.pictures import digest_of, kept_bytes
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local
from tests.cloud_verifier.raw_client import OPTIONS, RawClient, events
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair, RunningServer, StartServer, patiently_connected

FRAMES = [tiny.picture(number) for number in range(12)]
WINDOW = 4


def look(model: LoadedModel, first: int) -> Prompt:
    """What a robot asks at a decision: the frames before, and a new one."""
    return chat_prompt(model, ["walk. You saw ", *FRAMES[first : first + WINDOW], " and now?"])


def ask(decoder: EdgeDecoder, model: LoadedModel, prompt: Prompt) -> int:
    """One answer, which is the target's own; returns the bytes that opened it."""
    assert [t for chunk in decoder.generate(prompt, OPTIONS) for t in chunk] == generate_local(
        model, prompt, OPTIONS
    )
    return decoder.stats.prompt_bytes


def shelf_of(server: RunningServer) -> PictureCache:
    return server.server._admission.pictures


def looked_at(server: RunningServer) -> int:
    return server.server._engine.prompts.pictures.looked_at


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sd", "cloud-sd", "split"])
def test_a_decision_sends_and_looks_at_its_new_frame_alone(
    vision_pair: Pair, start_server: StartServer, method: str
) -> None:
    target, draft = vision_pair.target, vision_pair.draft
    server = start_server(target, draft_model=draft)
    with patiently_connected(server.address) as link:
        decoder = EdgeDecoder(link, draft, method, front_model=target)
        sizes = [ask(decoder, target, look(target, first)) for first in range(3)]
        if method != "split":  # whose edge sends what its layers make of the prompt
            assert sizes[0] > 3 * max(sizes[1:])
            models = 2 if method == "cloud-sd" else 1
            assert looked_at(server) == models * (WINDOW + 2)
    assert shelf_of(server).named == 2 * (WINDOW - 1) and shelf_of(server).missing == 0
    assert [event["named"] for event in events(server, "open")] == [0, WINDOW - 1, WINDOW - 1]


@pytest.mark.slow
def test_what_is_lost_is_asked_for(vision_pair: Pair, start_server: StartServer) -> None:
    target, draft = vision_pair.target, vision_pair.draft
    server = start_server(target)
    with patiently_connected(server.address) as link:
        decoder = EdgeDecoder(link, draft, "sd")
        whole = ask(decoder, target, look(target, 0))
        [kept] = shelf_of(server)._clients.values()
        while len(kept.pictures) > WINDOW - 2:
            kept.forget_one()
        again = ask(decoder, target, look(target, 1))
        assert shelf_of(server).missing == 1 and again < whole, "only what was lost and what was new"
        assert decoder.stats.resumes == 0
        shelf_of(server)._clients.clear()
        ask(decoder, target, look(target, 2))
        assert ask(decoder, target, look(target, 3)) < whole / 2


@pytest.mark.slow
def test_a_verifier_that_comes_again_is_told_everything(vision_pair: Pair, start_server: StartServer) -> None:
    target = vision_pair.target
    server = start_server(target)
    with patiently_connected(server.address) as link:
        decoder = EdgeDecoder(link, vision_pair.draft, "sd", resume_timeout_s=30)
        whole = ask(decoder, target, look(target, 0))
        server.stop()
        server = start_server(target, server.address)
        assert ask(decoder, target, look(target, 0)) > whole - 100
        assert ask(decoder, target, look(target, 1)) < whole / 2


@pytest.mark.slow
def test_an_answer_goes_on_after_a_cut_and_its_pictures_stay(
    vision_pair: Pair, start_server: StartServer
) -> None:
    target = vision_pair.target
    server = start_server(target)
    with patiently_connected(server.address) as link:
        decoder = EdgeDecoder(link, vision_pair.draft, "sd", resume_timeout_s=30)
        whole = ask(decoder, target, look(target, 0))
        prompt, ids = look(target, 1), []
        for chunk in decoder.generate(prompt, OPTIONS):
            ids += chunk
            if decoder.stats.resumes == 0 and len(ids) > 3:
                link.reset()
        assert ids == generate_local(target, prompt, OPTIONS)
        assert decoder.stats.resumes == 1
        assert decoder.stats.prompt_bytes < whole, "both openings together"
    assert shelf_of(server).missing == 0


@pytest.mark.slow
@pytest.mark.parametrize("kept_mb", [0, 0.012])
def test_a_small_shelf_costs_bytes_and_no_answer(
    vision_pair: Pair, start_server: StartServer, kept_mb: float
) -> None:
    target = vision_pair.target
    server = start_server(target, max_kept_pictures_mb=kept_mb)
    with patiently_connected(server.address) as link:
        decoder = EdgeDecoder(link, vision_pair.draft, "sd")
        for first in (0, 1, 0):
            ask(decoder, target, look(target, first))
        assert shelf_of(server).bytes <= kept_mb * 2**20


@pytest.mark.slow
def test_an_edge_that_names_none_has_none_kept(vision_pair: Pair, start_server: StartServer) -> None:
    server = start_server(vision_pair.target)
    client = RawClient(server.address)
    assert isinstance(client.ask(opening(vision_pair.target, FRAMES[:2])), wire.Opened)
    assert shelf_of(server).bytes == 0
    client.close()


def opening(
    model: LoadedModel, images: Sequence[bytes | wire.Picture], places: int | None = None
) -> wire.Open:
    prompt = chat_prompt(model, ["look ", *[FRAMES[0]] * (len(images) if places is None else places)])
    return wire.Open(1, False, sampling_to_wire(OPTIONS), list(prompt.ids), list(images))


def named(picture: bytes) -> wire.Picture:
    return wire.Picture(digest_of(picture))


def to_keep(picture: bytes) -> wire.Picture:
    return wire.Picture(digest_of(picture), picture)


class TestForeignNames:
    @pytest.fixture
    def server(self, vision_pair: Pair, start_server: StartServer) -> RunningServer:
        """A verifier that an honest client has pictures on: frames 0 to 3."""
        server = start_server(vision_pair.target, max_image_megapixels=0.1, max_images=8)
        with patiently_connected(server.address) as link:
            ask(EdgeDecoder(link, vision_pair.draft), vision_pair.target, look(vision_pair.target, 0))
        return server

    @pytest.mark.slow
    def test_of_another_clients_picture_nothing_is_told(
        self, vision_pair: Pair, server: RunningServer
    ) -> None:
        """A picture that another client has sent and one that nobody has are missing in the same words."""
        client = RawClient(server.address)
        model = vision_pair.target
        theirs = client.ask(opening(model, [named(FRAMES[0])]))
        nobodys = client.ask(opening(model, [named(b"nobody has this")]))
        assert theirs == nobodys
        assert isinstance(theirs, wire.ErrorDown) and theirs.code == wire.ERROR_PICTURES
        both = client.ask(opening(model, [to_keep(FRAMES[5]), named(FRAMES[1]), FRAMES[6]]))
        assert isinstance(both, wire.ErrorDown) and both.missing == [1]
        again = client.ask(opening(model, [named(FRAMES[5])]))
        assert isinstance(again, wire.ErrorDown), "nothing is kept of a message that was not taken"
        client.close()

    @pytest.mark.slow
    def test_a_name_with_other_contents_is_refused(self, vision_pair: Pair, server: RunningServer) -> None:
        client = RawClient(server.address)
        wrong = wire.Picture(digest_of(FRAMES[0]), FRAMES[1])
        reply = client.ask(opening(vision_pair.target, [wrong, named(FRAMES[0])]))
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_MALFORMED
        client.close()

    @pytest.mark.slow
    @pytest.mark.parametrize("places", [0, 1, 3])
    def test_names_without_a_place_in_the_prompt(
        self, vision_pair: Pair, server: RunningServer, places: int
    ) -> None:
        client = RawClient(server.address)
        assert isinstance(client.ask(opening(vision_pair.target, [to_keep(FRAMES[0])] * 2)), wire.Opened)
        reply = client.ask(opening(vision_pair.target, [named(FRAMES[0])] * 2, places))
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_REFUSED
        client.close()

    @pytest.mark.slow
    def test_what_is_named_counts_as_what_is_sent(self, vision_pair: Pair, server: RunningServer) -> None:
        """0.1 megapixels are five frames, and the bound on images holds for names."""
        client = RawClient(server.address)
        model = vision_pair.target
        assert isinstance(client.ask(opening(model, [to_keep(FRAMES[0])])), wire.Opened)
        for image in (FRAMES[0], named(FRAMES[0])):
            many = client.ask(opening(model, [image] * 9))
            assert isinstance(many, wire.ErrorDown) and "9 images" in many.message
            heavy = client.ask(opening(model, [image] * 6))
            assert isinstance(heavy, wire.ErrorDown) and heavy.code == wire.ERROR_TOO_LARGE
            assert "pixels" in heavy.message
        client.close()

    @pytest.mark.slow
    def test_names_are_no_way_around_the_longest_message(
        self, vision_pair: Pair, start_server: StartServer
    ) -> None:
        small = tiny.picture(1, 56, 56)
        padded = small + b"\0" * 60_000
        server = start_server(vision_pair.target, max_message_mb=0.1)
        client = RawClient(server.address)
        model = vision_pair.target
        assert isinstance(client.ask(opening(model, [to_keep(padded)])), wire.Opened)
        reply = client.ask(opening(model, [named(padded)] * 2))
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_TOO_LARGE
        client.close()

    @pytest.mark.slow
    def test_who_shows_the_token_has_its_pictures_and_nobody_else(
        self, vision_pair: Pair, server: RunningServer
    ) -> None:
        model, hello = vision_pair.target, wire.Hello(wire.PROTOCOL_VERSION, "edge")
        before, after, other = (RawClient(server.address) for _ in range(3))
        welcome = before.ask(hello)
        assert isinstance(welcome, wire.Welcome)
        assert isinstance(before.ask(opening(model, [to_keep(FRAMES[7])])), wire.Opened)
        after.ask(wire.Hello(wire.PROTOCOL_VERSION, "edge", welcome.token))
        other.ask(hello)
        assert isinstance(after.ask(opening(model, [named(FRAMES[7])])), wire.Opened)
        assert isinstance(other.ask(opening(model, [named(FRAMES[7])])), wire.ErrorDown)
        for client in (before, after, other):
            client.close()


class TestShelf:
    def test_each_client_has_its_own(self) -> None:
        shelf = PictureCache(1 << 20, 60.0, lambda: 0.0)
        keep(shelf, b"a", FRAMES[:2])
        assert shelf.look_up(b"a", [named(FRAMES[1]), FRAMES[2]]) == ([FRAMES[1], FRAMES[2]], [])
        assert shelf.look_up(b"b", [FRAMES[2], named(FRAMES[1])]) == ([FRAMES[2]], [1])

    def test_a_picture_that_comes_twice_in_a_message_may_be_named_there(self) -> None:
        shelf = PictureCache(1 << 20, 60.0, lambda: 0.0)
        found = shelf.look_up(b"a", [named(FRAMES[0]), to_keep(FRAMES[0]), named(FRAMES[0])])
        assert found == ([FRAMES[0]] * 3, [])

    def test_what_was_used_longest_ago_goes_first(self) -> None:
        shelf = PictureCache(1 << 20, 60.0, lambda: 0.0)
        same_size = [bytes([number]) * 500 for number in range(4)]
        most = 3 * kept_bytes(same_size[0])
        keep(shelf, b"a", same_size[:3], most)
        keep(shelf, b"a", [same_size[0]], most)
        keep(shelf, b"a", [same_size[3]], most)
        assert shelf.look_up(b"a", [named(one) for one in same_size])[1] == [1]
        assert shelf.bytes <= most

    def test_all_clients_together_have_a_bound(self) -> None:
        shelf = PictureCache(5 * kept_bytes(FRAMES[0]), 60.0, lambda: 0.0)
        for number in range(200):
            keep(shelf, b"%d" % number, [FRAMES[number % 12]])
            assert shelf.bytes <= 5 * kept_bytes(FRAMES[0])
        assert len(shelf._clients) <= 6
        assert shelf.look_up(b"199", [named(FRAMES[199 % 12])])[1] == []

    def test_tiny_pictures_are_no_way_around_a_bound(self) -> None:
        shelf = PictureCache(1 << 30, 60.0, lambda: 0.0)
        for number in range(1000):
            keep(shelf, b"a", [b"%d" % number], 100_000)
        [kept] = shelf._clients.values()
        assert len(kept.pictures) < 100

    def test_who_has_not_come_for_long_has_none(self) -> None:
        now = 0.0
        shelf = PictureCache(1 << 20, 60.0, lambda: now)
        keep(shelf, b"a", FRAMES[:2])
        now = 50.0
        keep(shelf, b"b", FRAMES[:1])
        now = 70.0
        shelf.expire()
        assert shelf.look_up(b"a", [named(FRAMES[0])])[1] == [0]
        assert shelf.look_up(b"b", [named(FRAMES[0])])[1] == []
        now = 200.0
        shelf.expire()
        assert shelf.bytes == 0 and not shelf._clients

    def test_contents_that_are_not_their_digest(self) -> None:
        with pytest.raises(ProtocolError, match="digest"):
            PictureCache(1 << 20, 60.0, lambda: 0.0).look_up(b"a", [wire.Picture(b"d" * 32, b"x")])


def keep(shelf: PictureCache, client: bytes, pictures: Sequence[bytes], most: int = 1 << 20) -> None:
    images = [to_keep(one) for one in pictures]
    shelf.keep(client, images, shelf.look_up(client, images)[0], most)
    assert shelf.bytes == sum(one.bytes for one in shelf._clients.values())


def test_all_connections_of_a_key_have_the_same_pictures_and_other_keys_others() -> None:
    clients = Clients(Limits(), 60.0, lambda: 0.0)
    for identity, key in ((b"1", "robot"), (b"2", "robot"), (b"3", "drone")):
        clients.know(identity, ClientKey(key, "x" * 40, datetime.now(UTC)))
    one, two, three, four = (clients.heard_of(identity).lasting for identity in (b"1", b"2", b"3", b"4"))
    assert one == two and len({one, three, four}) == 3
