"""Drafts that are looked up: what is found, what is forgotten, and that an edge needs no draft model for them."""

from __future__ import annotations

import threading
from io import StringIO

import pytest

from cloud_verifier.config import ServerConfig
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from specdec.drafting.lookup.drafter import BetterDrafter, LookupDrafter
from specdec.drafting.lookup.suffixes import Found, SuffixMemory, special_ids
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import OptionsError
from specdec.methods import get_method
from specdec.models import Prompt, chat_prompt
from specdec.options import GenerationOptions
from tests.helpers.servers import Pair, patiently_connected


class TestSuffixMemory:
    """Over ids that stand for themselves."""

    def test_the_longest_ending_decides(self) -> None:
        memory = SuffixMemory()
        memory.begin([7, 1, 2, 3, 8, 2, 4, 1])
        memory.follow([2])
        assert memory.after(2) == Found((3, 8), 2)  # after 1 2, not after the later 2

    def test_of_equal_endings_the_last_one_decides(self) -> None:
        memory = SuffixMemory()
        memory.begin([1, 5, 1, 6, 1])
        assert memory.after(1) == Found((6,), 1)

    def test_what_repeats_itself_goes_on_repeating(self) -> None:
        memory = SuffixMemory()
        memory.begin([1, 2, 1, 2])
        assert memory.after(5).ids == (1, 2, 1, 2, 1)

    def test_what_was_taken_back_is_not_found(self) -> None:
        memory = SuffixMemory()
        memory.begin([9])
        memory.follow([1, 2, 3])
        memory.follow([1, 4, 1])
        assert memory.after(3) == Found((4, 1, 4), 1)

    def test_an_earlier_answer_is_found_but_nothing_across_its_end(self) -> None:
        memory = SuffixMemory()
        memory.begin([5])
        memory.follow([1, 2, 3])
        memory.begin([6, 1, 2])
        assert memory.after(4).ids == (3,)

    def test_what_must_not_be_drafted_is_never_found(self) -> None:
        memory = SuffixMemory()
        memory.begin([1, 99, 2, 1], never={99})
        assert memory.after(2) == Found()

    def test_the_oldest_half_goes_when_there_is_too_much(self) -> None:
        memory = SuffixMemory(most_tokens=100)
        for number in range(50):
            memory.begin([number * 10 + place for place in range(10)])
        assert len(memory) <= 111
        memory.begin([490])
        assert memory.after(1).ids == (491,)
        memory.begin([0])
        assert memory.after(1) == Found()

    def test_a_memory_of_nothing_keeps_no_answer(self) -> None:
        memory = SuffixMemory(most_tokens=0)
        memory.begin([1, 2, 3])
        memory.begin([1, 2])
        assert memory.after(1) == Found()


class TestLookupDrafter:
    """What leaves of it."""

    def test_a_place_is_looked_up_once(self) -> None:
        drafter = LookupDrafter(SuffixMemory())
        drafter.prefill(Prompt((1, 2, 3, 1)))
        assert drafter.step([], 2) and not drafter.step([], 2)
        assert drafter.take([], 2, 9).draft.ids == (2, 3)
        assert not drafter.step([8], 2) and drafter.take([8], 2, 9).draft.ids == ()

    def test_a_draft_ends_with_what_ends_an_answer(self) -> None:
        drafter = LookupDrafter(SuffixMemory(), eos_ids={3})
        drafter.prefill(Prompt((1, 2, 3, 4, 1)))
        drafter.step([], 4)
        assert drafter.take([], 4, 9).draft.ids == (2, 3)
        assert drafter.take([], 4, 1).draft.ids == (2,)


def test_lookups_are_sent_where_they_reach_further_than_the_model(text_pair: Pair) -> None:
    """The memory predicts the answer, the draft model as good as nothing; after some rounds lookups win, then stay."""
    from specdec.drafting import DraftModel

    said = list(range(20, 60))
    drafter = BetterDrafter(DraftModel(text_pair.draft, GenerationOptions()), SuffixMemory())
    drafter.prefill(Prompt((5, *said, 6, 20)))
    drafted = 0
    at = 1
    while at < len(said):
        while drafter.step(said[1:at], 4):
            pass
        ids = drafter.take(said[1:at], 4, 99).draft.ids
        right = [a == b for a, b in zip(ids, said[at:], strict=False)]
        drafted += all(right)
        at += 1 + (right.index(False) if False in right else len(right))
    assert drafted >= 5


def test_an_edge_without_a_draft_model_gives_the_targets_answer(
    text_pair: Pair, servers: dict[str, str]
) -> None:
    prompt = chat_prompt(text_pair.target, "one two one two one two one")
    options = GenerationOptions(24)
    with patiently_connected(servers[text_pair.target.path]) as link:
        alone = [t for c in EdgeDecoder(link, None, "ar").generate(prompt, options) for t in c]
        decoder = EdgeDecoder(link, None, "ngram")
        for _ in range(2):
            assert [t for c in decoder.generate(prompt, options) for t in c] == alone
    assert decoder.stats.tau > 3.0  # the second time it has heard all of it
    assert decoder.stats.draft_forwards == 0


@pytest.mark.slow
def test_a_cloud_without_a_draft_model_looks_up_what_followed(text_pair: Pair) -> None:
    prompt = chat_prompt(text_pair.target, "one two one two one two one")
    options = GenerationOptions(32)
    config = ServerConfig(text_pair.target.path, "tcp://127.0.0.1:0", draft_model="ngram")
    server = Server(config, text_pair.target, EventLog(StringIO()))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    with patiently_connected(server.bind) as link:
        alone = [t for c in EdgeDecoder(link, None, "ar").generate(prompt, options) for t in c]
        decoder = EdgeDecoder(link, None, "cloud-sd")
        assert [t for c in decoder.generate(prompt, options) for t in c] == alone
    server.stop()
    thread.join(timeout=10)
    assert sum(one.drafted for one in decoder.stats.rounds) > 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ngram+tree:12x4", "drafts chains"),
        ("dssd+drafter:ngram", "ids only"),
        ("fsd+drafter:both", "drafts chains"),
        ("sd+drafter:both+overlap:stream", "one at a time"),
        ("sd+drafter:oracle", "choose one of model, ngram, both"),
    ],
)
def test_combinations_that_cannot_be_are_refused(name: str, words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        get_method(name)


@pytest.mark.slow
def test_ids_of_pictures_are_special(vision_pair: Pair) -> None:
    assert vision_pair.draft.never_drafted <= special_ids(vision_pair.draft.tokenizer)
