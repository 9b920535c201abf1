"""The ways of attention agree: what a GPU takes (`PartedAttention`) is checked on a CPU against what a CPU takes
(`FoldedAttention`).
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.utils._python_dispatch import _disable_current_modes

from specdec.models import LoadedModel, chat_prompt, load_model
from specdec.models.attention import choice, parted
from specdec.models.attention.choice import attention_for
from specdec.models.attention.invariant import InvariantAttention
from specdec.models.attention.parted import PartedAttention, PartedSight, attend_all
from specdec.models.attention.segment import FoldedAttention, FoldedSight, Segment, fold, reach, sees
from specdec.models.plans import extend_many
from specdec.models.session import grow_sight
from tests.helpers import shrunken
from tests.helpers import tiny_models as tiny
from tests.specdec.pretended_device import PretendedDevice, on_device, waits

CPU = torch.device("cpu")
DIM = 16
NOISE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
PARENTS = (-1, 0, 0, 2, -1, 3, 4)
CHAINS = [Segment(None, past, rows) for past, rows in ((0, 1), (0, 9), (1, 1), (40, 1), (40, 5), (6, 30))]


def tree(committed: int, parents: tuple[int, ...], held: int = 0) -> Segment:
    """The nodes of a tree behind `held` of them that are in the cache already."""
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    sight = grow_sight(torch.empty(0, 0, dtype=torch.bool), parents)
    return Segment(None, committed + held, len(parents) - held, sight[held:], tuple(depths))


TREES = [tree(50, PARENTS), tree(50, PARENTS, 3), tree(3, PARENTS), tree(50, (-1,)), tree(50, (-1, -1), 1)]


def inputs(segment: Segment, groups: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    made = torch.Generator().manual_seed(segment.total)
    keys, values = torch.randn(2, 2, segment.total, DIM, generator=made).to(dtype)
    return torch.randn(segment.rows, 2 * groups, DIM, generator=made).to(dtype), keys, values


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NOISE)
@pytest.mark.parametrize("window", [0, 8, 24, 300])
def test_in_parts_and_folded_give_the_same(window: int, dtype: torch.dtype) -> None:
    for segment, groups, scale in itertools.product([*CHAINS, *TREES], (1, 3), (None, 0.4)):
        query, keys, values = inputs(segment, groups, dtype)
        ways = (FoldedAttention(groups, dtype, CPU, scale), PartedAttention(groups, dtype, CPU, scale))
        folded, in_parts = (way.attend(query, keys, values, way.sight(segment, window)) for way in ways)
        assert in_parts.dtype == dtype and in_parts.shape == folded.shape
        torch.testing.assert_close(in_parts, folded, rtol=0.0, atol=NOISE[dtype])


@pytest.mark.parametrize("window", [0, 8, 24, 300])
def test_what_rows_see_is_what_stands_before_them_within_the_window(window: int) -> None:
    for segment in (*CHAINS, *TREES):
        seen = sees(segment, window, 0, CPU)
        for row, slot in itertools.product(range(segment.rows), range(segment.total)):
            at, node = segment.past + row, slot - segment.committed
            visible = slot <= at
            if segment.tree is not None and node >= 0:
                visible = bool(segment.tree[row, node])
            if segment.tree is not None:
                at = segment.committed + segment.depths[at - segment.committed]
                slot = slot if node < 0 else segment.committed + segment.depths[node]
            assert bool(seen[row, slot if node < 0 else segment.committed + node]) == (
                visible and (not window or at - slot < window)
            )
        first, shared = reach(segment, window)
        assert not seen[:, :first].any() and bool(seen[:, shared : segment.committed].all())


def test_no_table_is_as_long_as_the_cache_where_a_kernel_knows_better() -> None:
    way = PartedAttention(3, torch.float32, CPU, None)
    for window in (0, 300):
        sight = way.sight(Segment(None, 1000, 33), window)
        assert isinstance(sight, PartedSight)
        assert sight.added is None or sight.added.shape[1] <= 2 * 33 + 1
        sight = way.sight(tree(1000, PARENTS), window)
        assert isinstance(sight, PartedSight)
        assert sight.bias is None and sight.added is not None and sight.added.shape[1] < 3 * len(PARENTS)
    assert way.sight(tree(1000, (-1,)), 0) == PartedSight(0), "a lone node sees all there is"
    assert isinstance(way.sight(Segment(None, 0, 400), 24), FoldedSight), "few are seen by all"


def test_the_score_of_a_kernel_is_that_of_the_plain_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    query, keys, values = inputs(Segment(None, 40, 5), 3, torch.float32)
    attended, score = attend_all(query, keys, values, 0.3)
    scores = torch.bmm(fold(query, 2), keys.transpose(1, 2)) * 0.3
    torch.testing.assert_close(attended, torch.bmm(scores.softmax(-1), values), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(score, scores.logsumexp(-1), rtol=0.0, atol=1e-5)


def test_a_device_takes_the_way_that_it_has_a_kernel_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, half = torch.device("cuda"), torch.float16
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    capability = (8, 7)
    monkeypatch.setattr(choice.torch.cuda, "get_device_capability", lambda device: capability)
    kinds = {
        FoldedAttention: [(64, half, CPU), (64, torch.float32, gpu), (80 + 4, half, gpu), (320, half, gpu)],
        PartedAttention: [(64, half, gpu), (128, torch.bfloat16, gpu)],
    }
    for kind, cases in kinds.items():
        for dim, dtype, device in cases:
            assert type(attention_for(2, dim, dtype, device, None, False)) is kind, (dim, dtype, device)
            assert type(attention_for(2, dim, dtype, device, None, True)) is InvariantAttention
    capability = (7, 5)
    assert type(attention_for(2, 64, half, gpu, None, False)) is FoldedAttention


def in_parts(model: LoadedModel) -> LoadedModel:
    """The model with the attention that a GPU takes."""
    runner, folded = model.runner, model.runner.attention
    assert isinstance(folded, FoldedAttention)
    runner.attention = PartedAttention(
        runner.heads // runner.kv_heads, runner.dtype, runner.device, folded._scale
    )
    return model


@torch.inference_mode()
def rows_of(model: LoadedModel, pictures: bool = True) -> list[Tensor]:
    """Logits of prompts, chains and trees, of sessions alone and together."""
    prompts = [chat_prompt(model, "walk past the table and the two chairs, then turn left at the door")]
    if model.is_multimodal and pictures:
        prompts.append(chat_prompt(model, "what is it?", images=[tiny.picture(1)]))
    sessions = [model.new_session() for _ in range(2)]
    found = []
    for session, prompt in zip(sessions, prompts * 2, strict=False):
        found += [session.prefill(model.encode(prompt)), session.extend([5]), session.extend([6, 7, 8, 9])]
        found += [session.extend_tree([5, 6, 7, 8], [-1, 0, 0, 1]), session.extend_tree([9, 10], [-1, 3])]
        session.keep_path([0, 1], [3])
        found.append(session.extend_tree([11], [0]))
        session.rollback(session.length - 1)
    return found + extend_many([sessions[0].extension([5, 6, 7]), sessions[1].extension([5, 6], [-1, -1])])


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(shrunken.BUILDERS))
def test_every_family_gives_the_same_in_parts(family: str, tmp_path: Path) -> None:
    folder = shrunken.build(family, tmp_path / "target")
    usual, other = (load_model(folder, dtype="float32") for _ in range(2))
    for left, right in zip(rows_of(usual), rows_of(in_parts(other)), strict=True):
        torch.testing.assert_close(left, right, rtol=0.0, atol=1e-4)


def unseen_causal_bias(rows: int, slots: int) -> Any:
    """It is a tensor without numbers, which a mode cannot make."""
    with _disable_current_modes():
        return causal_lower_right(rows, slots)


@pytest.mark.slow
def test_in_parts_nothing_mixes_on_a_device_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec.models.loading.read_model", lambda path: None)
    monkeypatch.setattr(parted, "causal_lower_right", unseen_causal_bias)
    model = load_model(tiny.built_pairs() / "text-target", dtype="float32")
    expected = rows_of(model)
    with PretendedDevice(), torch.inference_mode():
        there = in_parts(on_device(model))
        with waits() as found:
            rows = rows_of(there)
        assert not found
        for left, right in zip(expected, rows, strict=True):
            torch.testing.assert_close(left, right.cpu(), rtol=0.0, atol=1e-4)
