"""Which pictures an edge names instead of sending them again, and what it makes of a verifier that lacks some."""

from __future__ import annotations

import msgspec
import pytest

from specdec.errors import ProtocolError
from specdec.link import wire
from specdec.link.pictures import KnownPictures, digest_of, kept_bytes

FRAMES = [bytes([number]) * 100 for number in range(1, 9)]
ROOMY = 1 << 20


def welcome(picture_bytes: int = ROOMY, server: int = 1, token: bytes = b"t") -> wire.Welcome:
    return wire.Welcome(4, server=server, token=token, allowed=wire.Allowed(picture_bytes=picture_bytes))


def sent(images: list[bytes | wire.Picture]) -> list[bytes]:
    """Contents that go up."""
    return [data for one in images if (data := one if isinstance(one, bytes) else one.data)]


def test_what_is_confirmed_is_named_and_nothing_else() -> None:
    known = KnownPictures()
    assert sent(known.to_send(welcome(), FRAMES[:2])) == FRAMES[:2]
    assert sent(known.to_send(welcome(), FRAMES[:2])) == FRAMES[:2], "nothing said that they are there"
    known.confirmed()
    images = known.to_send(welcome(), FRAMES[:3])
    assert sent(images) == FRAMES[2:3]
    assert [one.digest for one in images if isinstance(one, wire.Picture)] == list(map(digest_of, FRAMES[:3]))


def test_a_picture_that_comes_twice_in_a_prompt_is_sent_once() -> None:
    assert sent(KnownPictures().to_send(welcome(), [FRAMES[0]] * 7 + [FRAMES[1]])) == FRAMES[:2]


def test_a_verifier_that_keeps_none_gets_messages_as_ever() -> None:
    known = KnownPictures()
    for _ in range(2):
        assert known.to_send(welcome(0), FRAMES) == FRAMES
        known.confirmed()
    assert len(known) == 0


def test_what_is_larger_than_all_that_is_kept_is_just_sent() -> None:
    known = KnownPictures()
    large = b"x" * 5000
    for _ in range(2):
        images = known.to_send(welcome(4096), [large, FRAMES[0]])
        known.confirmed()
    assert images[0] == large and len(known) == 1


@pytest.mark.parametrize("other", [welcome(server=2), welcome(token=b"u")], ids=["restarted", "a new client"])
def test_another_verifier_knows_nothing(other: wire.Welcome) -> None:
    known = KnownPictures()
    known.to_send(welcome(), FRAMES)
    known.confirmed()
    assert sent(known.to_send(welcome(), FRAMES)) == []
    assert sent(known.to_send(other, FRAMES)) == FRAMES


def test_it_forgets_as_the_verifier_does() -> None:
    known = KnownPictures()
    room = welcome(3 * kept_bytes(FRAMES[0]))
    for frame in FRAMES:
        known.to_send(room, [frame])
        known.confirmed()
    assert len(known) == 3
    assert sent(known.to_send(room, FRAMES)) == FRAMES[:5]


def test_what_is_missing_goes_up_and_the_others_do_not() -> None:
    known = KnownPictures()
    known.to_send(welcome(), FRAMES)
    known.confirmed()
    known.to_send(welcome(), FRAMES)
    known.missing([2, 5])
    assert sent(known.to_send(welcome(), FRAMES)) == [FRAMES[2], FRAMES[5]]
    known.missing([0])
    assert sent(known.to_send(welcome(), FRAMES)) == FRAMES, "again: nothing is relied on"
    with pytest.raises(ProtocolError, match="was sent"):
        known.missing([0])


@pytest.mark.parametrize("which", [[], [63], [8]])
def test_a_verifier_that_lacks_what_was_not_named_is_sent_all(which: list[int]) -> None:
    known = KnownPictures()
    known.to_send(welcome(), FRAMES)
    known.confirmed()
    known.to_send(welcome(), FRAMES)
    known.missing(which)
    assert sent(known.to_send(welcome(), FRAMES)) == FRAMES


SAMPLING = [64, 0.0, 0, 0, 1.0, 0.0]


@pytest.mark.parametrize(
    "images",
    [
        [[b"d" * 31]],
        [[b"d" * 33]],
        [[b""]],
        [["d" * 32]],
        [[b"d" * 32, 5]],
        [[]],
        [5],
        [[b"d" * 32]] * 65,
    ],
    ids=["short", "long", "empty", "text", "no data", "nothing", "a number", "too many"],
)
def test_what_is_no_name_is_no_message(images: list[object]) -> None:
    with pytest.raises(ProtocolError):
        wire.decode_up(msgspec.msgpack.encode([2, 1, False, SAMPLING, [1], images]))


def test_names_survive_the_way() -> None:
    images: list[bytes | wire.Picture] = [b"jpeg", wire.Picture(b"d" * 32), wire.Picture(b"e" * 32, b"png")]
    sampling = wire.Sampling(64, 0.0, 0, 0, 1.0, 0.0)
    message = wire.Open(1, False, sampling, [1], images)
    assert wire.decode_up(wire.encode(message)) == message
    lacking = wire.ErrorDown(1, wire.ERROR_PICTURES, "send them", list(range(64)))
    assert wire.decode_down(wire.encode(lacking)) == lacking
