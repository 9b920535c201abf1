"""Streaming text: what is shown is never taken back, and together it is the whole text."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdec.text.streaming import StreamingText
from tests.helpers.servers import Pair


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="aé€😀 \n", max_size=120), chunk=st.integers(1, 7))
def test_pieces_join_to_the_whole(text_pair: Pair, text: str, chunk: int) -> None:
    tokenizer = text_pair.target.tokenizer
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    stream = StreamingText(tokenizer)
    pieces = [stream.push(ids[i : i + chunk]) for i in range(0, len(ids), chunk)]
    pieces.append(stream.finish())
    assert "".join(pieces) == stream.text == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_half_a_character_waits_for_the_rest(text_pair: Pair) -> None:
    tokenizer = text_pair.target.tokenizer
    ids = tokenizer("€", add_special_tokens=False)["input_ids"]
    stream = StreamingText(tokenizer)
    assert [stream.push([token]) for token in ids] == ["", "", "€"]


def test_bytes_that_never_become_a_character_come_out_at_the_end(text_pair: Pair) -> None:
    tokenizer = text_pair.target.tokenizer
    ids = tokenizer("€", add_special_tokens=False)["input_ids"][:2]
    stream = StreamingText(tokenizer)
    assert stream.push(ids) == ""
    assert "\ufffd" in stream.finish()


def test_special_tokens_are_not_shown(text_pair: Pair) -> None:
    tokenizer = text_pair.target.tokenizer
    stream = StreamingText(text_pair.target)
    assert stream.push(tokenizer("a<|im_end|>b", add_special_tokens=False)["input_ids"]) == "ab"
