"""The wire contract: sizes of messages, and any bytes at all give a message or a ProtocolError, nothing else."""

from __future__ import annotations

import tracemalloc
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.errors import ProtocolError
from specdec.link import wire
from specdec.link.convert import sampling_from_wire
from specdec.options import GenerationOptions
from tests.helpers.wire_messages import DOWN, SAMPLING, UP


def test_every_kind_of_message_is_tried_here() -> None:
    assert {type(message) for message in UP} == set(get_args(wire.Up))
    assert {type(message) for message in DOWN} == set(get_args(wire.Down))


@pytest.mark.parametrize("message", UP, ids=lambda m: type(m).__name__)
def test_messages_up_survive_the_way(message: wire.Up) -> None:
    assert wire.decode_up(wire.encode(message)) == message
    with pytest.raises(ProtocolError):
        wire.decode_down(wire.encode(message))


@pytest.mark.parametrize("message", DOWN, ids=lambda m: type(m).__name__)
def test_messages_down_survive_the_way(message: wire.Down) -> None:
    assert wire.decode_down(wire.encode(message)) == message
    with pytest.raises(ProtocolError):
        wire.decode_up(wire.encode(message))


def test_options_survive_the_way() -> None:
    assert sampling_from_wire(SAMPLING) == GenerationOptions(64, 0.8, 2**62, 5, 0.9, 0.1)


def test_a_round_at_gamma_four_is_small_whatever_the_ids_are() -> None:
    """Largest ids of a 152k vocabulary, session, round and position all at their largest usual size."""
    draft = wire.DraftUp(65_535, 65_535, 65_535, [151_643] * 4)
    verdict = wire.VerdictDown(65_535, 65_535, 4, 151_643, 4_000_000, 65_535)
    assert len(wire.encode(draft)) <= 40
    assert len(wire.encode(verdict)) <= 24


def test_options_out_of_range_on_the_wire_are_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="temperature"):
        sampling_from_wire(wire.Sampling(64, -1.0, 0, 0, 1.0, 0.0))


def test_too_large_a_message_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Never:
        def decode(self, data: bytes) -> None:
            raise AssertionError("decoded")

    monkeypatch.setattr(wire, "_up_decoder", Never())
    with pytest.raises(ProtocolError, match="exceeds"):
        wire.decode_up(msgspec.msgpack.encode([5, 1, b"x" * 1000]))
    big = wire.encode(wire.Open(1, False, SAMPLING, [1] * 100_000))
    with pytest.raises(ProtocolError, match="exceeds"):
        wire.decode_up(big, max_bytes=1000)


@pytest.mark.parametrize(
    "fields",
    [
        [3, -1, 1, 0, [1]],
        [3, 1, 1, 0, [-5]],
        [3, 1, 1, 0, [2**40]],
        [3, 1, 1, 0, ["a"]],
        [3, 1, 1, 0, [1], [-2]],
        [3, 1, 1, 0, [1] * 5000],
        [3, 1.5, 1, 0, [1]],
        [3, 1],
        [2, 1, False, [64, 0.0, 0, 0, 1.0, 0.0], "ids"],
        [2, 1, False, [64, 0.0, 0, 0, 1.0, 0.0], [1], [b""] * 100],
        [1],
        [77, 1],
        [9, 1, 2, 65],
        [9, 1, 2, -1],
        [2, 1, False, [64, 0.0, 0, 0, 1.0, 0.0], [1], [], [], 0, 0, 0, False, 0, False, 65],
        [2, 1, False, [64, 0.0, 0, 0, 1.0, 0.0], [1], [], [], 0, 0, 0, False, 0, False, 1, 2],
    ],
)
def test_every_field_is_checked(fields: list[object]) -> None:
    with pytest.raises(ProtocolError):
        wire.decode_up(msgspec.msgpack.encode(fields))


def test_later_versions_may_add_fields_at_the_end() -> None:
    assert wire.decode_up(msgspec.msgpack.encode([1, 9, "edge", b"token", "new", 5])) == wire.Hello(
        9, "edge", b"token"
    )


@pytest.mark.parametrize("third", [b"", b"x" * 500, "new", 7, None, [1, {"a": 2}]])
def test_a_greeting_of_another_version_is_understood_as_far_as_its_version(third: object) -> None:
    hello = wire.decode_up(msgspec.msgpack.encode([1, 9, "edge", third, 5]))
    assert isinstance(hello, wire.Hello) and (hello.version, hello.client) == (9, "edge")


def test_more_fields_than_a_short_array_has_are_no_trouble() -> None:
    message = wire.Open(1, False, SAMPLING, [1, 2], hints=4)
    fields = msgspec.msgpack.decode(wire.encode(message))
    assert wire.decode_up(msgspec.msgpack.encode([*fields, "new", 5])) == message


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan"), "high"])
def test_a_hints_confidence_is_a_probability(confidence: object) -> None:
    with pytest.raises(ProtocolError):
        wire.decode_down(msgspec.msgpack.encode([40, 1, 2, 3, 4, confidence, 5, 6]))


def test_the_largest_hint_and_welcome_stay_below_their_limits() -> None:
    largest = 2**31 - 1
    hint = wire.HintDown(largest, largest, largest, largest, 0.3, 1023, 2**53 - 1)
    layers = list(range(1024))
    allowed = wire.Allowed(*[largest] * 9)
    known = ("€" * 256, largest, b"x" * 32, [largest] * 64, largest, 2**64 - 1, layers, True)
    welcome = wire.Welcome(4, *known, b"t" * 16, allowed)
    for message in (hint, welcome):
        assert wire.decode_down(wire.encode(message)) == message


NUMBERS = sorted(type(message).__struct_config__.tag for message in [*UP, *DOWN])


@pytest.mark.parametrize("number", sorted(set(NUMBERS)))
def test_a_message_that_only_claims_to_be_large_takes_no_memory(number: int) -> None:
    """Lengths of up to 2**32 - 1 that nothing follows, in every place a length may stand."""
    heads = [
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
    ]
    tracemalloc.start()
    for head in heads:
        for fields in range(9):
            data = bytes([0x90 + fields + 2, number]) + b"\x01" * fields + head
            for decode in (wire.decode_up, wire.decode_down):
                with pytest.raises(ProtocolError):
                    decode(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("message", [*UP, *DOWN], ids=lambda m: type(m).__name__)
def test_every_kind_of_message_has_a_limit_of_its_own(message: wire.Up | wire.Down) -> None:
    decode, limits = (
        (wire.decode_up, wire._UP_LIMITS)
        if type(message) in get_args(wire.Up)
        else (wire.decode_down, wire._DOWN_LIMITS)
    )
    limit = limits[type(message).__struct_config__.tag]
    assert limit <= 256 << 20
    if limit <= 4 << 20:
        with pytest.raises(ProtocolError, match="exceeds"):
            decode(wire.encode(message) + b"\0" * limit)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda children: (
        st.lists(children, max_size=8) | st.dictionaries(st.text(max_size=3), children, max_size=3)
    ),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_a_message_or_a_protocol_error(data: bytes) -> None:
    for decode in (wire.decode_up, wire.decode_down):
        try:
            message = decode(data)
        except ProtocolError as error:
            assert "\n" not in str(error)
        else:
            assert isinstance(message, msgspec.Struct)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.sampled_from(NUMBERS), st.lists(json_like, max_size=8))
def test_any_well_formed_array_gives_a_message_or_a_protocol_error(number: int, fields: list[object]) -> None:
    data = msgspec.msgpack.encode([number, *fields])
    for decode in (wire.decode_up, wire.decode_down):
        try:
            message = decode(data)
        except ProtocolError:
            continue
        assert wire.encode(message)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.sampled_from(UP + DOWN), st.data())
def test_damaged_messages_give_a_message_or_a_protocol_error(
    message: wire.Up | wire.Down, data: st.DataObject
) -> None:
    raw = bytearray(wire.encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    for decode in (wire.decode_up, wire.decode_down):
        try:
            decode(cut)
        except ProtocolError:
            continue
