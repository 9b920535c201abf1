"""What an edge keeps from one prompt to the next changes no token, and stays within its bound."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from specdec.drafting import ChainDrafter, DraftModel
from specdec.drafting.memory import PromptMemory
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.plans import carry_out
from specdec.options import GenerationOptions
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair

OPTIONS = GenerationOptions(16)
PLENTY = 1 << 26
FRAMES = [tiny.picture(number) for number in range(8)]


def look(model: LoadedModel, frames: Sequence[bytes], text: str = "find the ball") -> Prompt:
    """Words in front of the pictures, and behind them."""
    return chat_prompt(model, [f"{text}. You have seen ", *frames, " and now?"])


def drafts(model: LoadedModel, prompt: Prompt, memory: PromptMemory | None) -> list[int]:
    """16 draft tokens, in two drafts, with a token in between that was not expected."""
    drafter = ChainDrafter(DraftModel(model, OPTIONS, memory))
    drafter.prefill(prompt)
    first = drafter.chain([], 8).draft.ids
    answer = [*first[:4], (first[-1] + 1) % 200]
    found = [*first, *drafter.chain(answer, 8).draft.ids]
    if memory is not None:
        memory.rest()
    return found


def history(model: LoadedModel) -> list[Prompt]:
    """A window of four frames that moves, then other words, and prompts that begin alike in other ways."""
    window = [look(model, FRAMES[first : first + 4]) for first in range(4)]
    swapped = [look(model, [FRAMES[0], FRAMES[2]]), look(model, [FRAMES[0], FRAMES[1]])]
    grown = [look(model, FRAMES[:3]), look(model, FRAMES[:4]), look(model, FRAMES[:2])]
    return [*window, look(model, FRAMES[3:7], "stop"), *swapped, *grown, grown[-1]]


@pytest.mark.slow
def test_drafts_are_those_of_a_prompt_that_came_as_a_whole(vision_pair: Pair) -> None:
    model, memory = vision_pair.draft, PromptMemory(vision_pair.draft, PLENTY)
    for prompt in history(model):
        assert drafts(model, prompt, memory) == drafts(model, prompt, None)
    assert memory.looked_at == 7, "each picture once"
    assert memory.taken_over > 100


@pytest.mark.slow
def test_text_alone_is_taken_over_as_far_as_it_repeats(text_pair: Pair) -> None:
    model, memory = text_pair.draft, PromptMemory(text_pair.draft, PLENTY)
    ids = [tuple(40 + (7 * i) % 200 for i in range(60))] * 4
    ids = [ids[0], ids[1], (*ids[2][:30], 41, *ids[2][31:]), ids[3][:20], (*ids[3], 7, 8, 9)]
    for one in ids:
        assert drafts(model, Prompt(one), memory) == drafts(model, Prompt(one), None)
    # All but its last token; up to the other one; 19 of 20; 20 of them.
    assert memory.taken_over == 59 + 30 + 19 + 20


@pytest.mark.slow
def test_rows_are_those_of_a_fresh_prompt(vision_pair: Pair) -> None:
    model, memory = vision_pair.target, PromptMemory(vision_pair.target, PLENTY)
    for prompt in history(model):
        drafting = DraftModel(model, OPTIONS, memory)
        row = carry_out(drafting.cursor.prefill.plan(memory.prepare(prompt)))
        memory.fed()
        fresh = model.new_session().prefill(model.encode(prompt))
        assert torch.allclose(row, fresh, atol=1e-4)


@pytest.mark.slow
def test_another_picture_of_the_same_size_is_another_one(vision_pair: Pair) -> None:
    """Its tokens are the same ids: only contents distinguish them."""
    model, memory = vision_pair.draft, PromptMemory(vision_pair.draft, PLENTY)
    first, second = look(model, FRAMES[:2]), look(model, FRAMES[1:3])
    assert first.ids == second.ids
    drafts(model, first, memory)
    assert drafts(model, second, memory) == drafts(model, second, None)
    assert memory.taken_over == model.encode(first).picture_starts[0]


def test_an_answer_without_drafts_costs_what_is_kept_nothing(
    text_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, prompt = PromptMemory(text_pair.draft, PLENTY), Prompt(tuple(range(40, 80)))
    drafts(text_pair.draft, prompt, memory)
    kept = memory.kept_bytes
    monkeypatch.setattr(type(memory.session()), "rollback", lambda *_: pytest.fail("there is nothing to roll back"))
    memory.rest()
    monkeypatch.undo()
    assert memory.kept_bytes == kept > 0
    assert drafts(text_pair.draft, prompt, memory) == drafts(text_pair.draft, prompt, None)
    assert memory.taken_over == len(prompt.ids) - 1


@pytest.mark.slow
@pytest.mark.parametrize("most", [0, 3000, 40_000, 100_000])
def test_what_is_kept_stays_within_its_bound(vision_pair: Pair, most: int) -> None:
    model, memory = vision_pair.draft, PromptMemory(vision_pair.draft, most)
    for prompt in history(model)[:5]:
        assert drafts(model, prompt, memory) == drafts(model, prompt, None)
        assert memory.kept_bytes <= most
    if most == 0:
        assert memory.taken_over == 0


def test_a_prompt_that_failed_half_way_leaves_nothing_behind(
    vision_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, memory = vision_pair.draft, PromptMemory(vision_pair.draft, PLENTY)
    first, second = look(model, FRAMES[:3]), look(model, FRAMES[:4])
    drafts(model, first, memory)
    with monkeypatch.context() as patch:
        patch.setattr(model.runner, "forward", _fails)
        with pytest.raises(RuntimeError, match="out of memory"):
            drafts(model, second, memory)
    before = memory.taken_over
    assert drafts(model, second, memory) == drafts(model, second, None)
    assert memory.taken_over == before


def _fails(*given: object) -> torch.Tensor:
    raise RuntimeError("out of memory")


def test_a_model_on_the_librarys_forward_takes_nothing_over(text_pair: Pair) -> None:
    own = text_pair.draft
    model = LoadedModel(own.hf_model, own.tokenizer, own.path, own.eos_token_ids, None)
    memory = PromptMemory(model, PLENTY)
    for text in ("hello there", "hello you"):
        prompt = chat_prompt(model, text)
        assert drafts(model, prompt, memory) == drafts(own, prompt, None)
    assert memory.taken_over == 0
