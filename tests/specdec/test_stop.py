"""Stop strings: found in the text of the answer, token by token, whatever bytes the tokens are made of."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdec.errors import OptionsError
from specdec.text.stop import StopText
from tests.helpers.servers import Pair


def pushed(tokenizer: object, stops: tuple[str, ...], ids: list[int]) -> int | None:
    """How many tokens there were when a stop string was complete."""
    watcher = StopText(tokenizer, stops)
    return next((count for count, token in enumerate(ids, 1) if watcher.push(token)), None)


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(alphabet="aé€😀 \n", max_size=60),
    stops=st.lists(st.text(alphabet="aé€😀 ", min_size=1, max_size=3), min_size=1, max_size=3),
    begun=st.integers(0, 40),
)
def test_it_ends_with_the_token_of_the_last_byte(
    text_pair: Pair, text: str, stops: list[str], begun: int
) -> None:
    tokenizer = text_pair.target.tokenizer  # a token a byte
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    expected = len(text[: min(ends)].encode()) if ends else None
    assert pushed(tokenizer, tuple(stops), ids) == expected
    resumed = StopText(tokenizer, tuple(stops), ids[:begun])
    assert resumed.found == (expected is not None and expected <= begun)
    assert any(resumed.push(token) for token in ids[begun:]) or resumed.found == (expected is not None)


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(st.integers(0, 263), max_size=40), stop=st.sampled_from(["a", "ab", "é", "\n"]))
def test_any_ids_at_all_end_where_the_library_would_end(text_pair: Pair, ids: list[int], stop: str) -> None:
    """Broken characters and special tokens among them."""
    import torch
    from transformers import AutoTokenizer
    from transformers.generation.stopping_criteria import StopStringCriteria

    tokenizer = text_pair.target.tokenizer
    spelled = tokenizer(stop, add_special_tokens=False)["input_ids"]
    ids = [*ids, *spelled]
    library = StopStringCriteria(AutoTokenizer.from_pretrained(text_pair.target.path), [stop])
    scores = torch.zeros(1, 1)
    expected = next(n for n in range(1, len(ids) + 1) if bool(library(torch.tensor([ids[:n]]), scores)))
    assert pushed(tokenizer, (stop,), ids) == expected


def test_special_tokens_count_as_they_are_spelled(text_pair: Pair) -> None:
    tokenizer = text_pair.target.tokenizer
    ids = tokenizer("ab<|im_start|>cd", add_special_tokens=False)["input_ids"]
    assert pushed(tokenizer, ("<|im_start|>",), ids) == 3
    assert pushed(tokenizer, ("bc",), ids) is None


def test_without_stop_strings_no_tokenizer_is_needed() -> None:
    watcher = StopText(None, (), [1, 2])
    assert not watcher.push(3) and not watcher.found


def test_stop_strings_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(OptionsError, match="tokenizer"):
        StopText(None, ("end",))
