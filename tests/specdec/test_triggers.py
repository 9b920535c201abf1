"""Confidence triggers: what each fires at, what drafts it makes, and that answers stay the target's own."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from specdec.drafting import ChainDrafter, DraftModel, Proposal
from specdec.drafting.lookup.drafter import LookupDrafter
from specdec.drafting.lookup.suffixes import SuffixMemory
from specdec.drafting.triggers import Learned, Moving, fires_at, make_trigger
from specdec.edge.session import EdgeSession
from specdec.errors import OptionsError
from specdec.methods import get_method
from specdec.models import Prompt
from specdec.options import GenerationOptions
from specdec.sampling.choice import chance_on_cpu, chances_of, likeliest_on_cpu
from tests.helpers.table_models import (
    PROMPT,
    STATES,
    TableModel,
    TablePair,
    endless,
    next_chances,
    states_of,
    table_pair,
)
from tests.specdec.checks import answer, greedy_reference


@pytest.mark.parametrize(
    ("length", "chances", "leave"),
    [
        ("token:0.7", [0.9, 0.8, 0.7, 0.9], 3),
        ("token:0.7", [0.9, 0.8, 0.71], None),
        ("token:1.0", [1.0, 1.0], 1),
        ("sequence:0.5", [0.9, 0.8, 0.7, 0.9], 4),  # 0.9 * 0.8 * 0.7 = 0.504
        ("sequence:0.5", [0.4], 1),
        ("dual:0.5/0.7", [0.9, 0.8, 0.71, 0.99, 0.9], 5),
        ("dual:0.5/0.7", [0.9, 0.7, 0.9], 2),
        ("sequence:moving", [0.95, 0.95, 0.95], 2),  # from 0.92 on
        ("token:0.7", [], None),
    ],
)
def test_a_draft_ends_with_the_token_at_which_its_trigger_fires(
    length: str, chances: list[float], leave: int | None
) -> None:
    trigger = make_trigger(length)
    assert trigger is not None and fires_at(trigger, chances) == leave


def test_a_moving_threshold_falls_with_what_is_accepted_and_rises_with_what_is_refuted() -> None:
    trigger = Moving()
    trigger.judged([0.5, 0.5], 2)
    assert trigger.chain == pytest.approx(0.46)
    trigger.judged([0.5, 1.0, 0.5, 1.0], 2)
    assert trigger.chain == pytest.approx(0.92)
    for _ in range(9):
        trigger.judged([0.1, 0.1], 0)
    assert trigger.chain == 1.99
    assert fires_at(trigger, [1.0, 1.0]) == 1
    for _ in range(200):
        trigger.judged([1.0], 1)
    assert trigger.chain > 0.0
    trigger.judged([0.0, 1.0], 0)  # what had no chance tells nothing
    assert 0.0 < trigger.chain < 1.0


def taught(overconfident: float, price: float | None, rounds: int = 3000) -> Learned:
    """A trigger that has seen drafts which are right `overconfident` times as often as they say."""
    trigger, random = Learned(by_chain=True, by_token=True), np.random.default_rng(0)
    for _ in range(rounds):
        chances = random.random(4).tolist()
        right = [random.random() < overconfident * chance for chance in chances]
        trigger.judged(chances, right.index(False) if False in right else 4, price)
    return trigger


@pytest.mark.slow
def test_learnt_thresholds_are_where_one_more_forward_would_just_pay() -> None:
    # Uniform chances that are true: half of the tokens are right, so a forward brings q / 2 tokens.
    assert taught(1.0, price=0.2).token == pytest.approx(0.4, abs=0.1)
    assert taught(1.0, price=0.1).token == pytest.approx(0.2, abs=0.1)
    # Right half as often: a quarter of the tokens, so that q / 2 must be 0.8 and no token reaches it.
    assert taught(0.5, price=0.2).token == 1.0
    assert taught(0.5, price=0.06).token == pytest.approx(0.48, abs=0.1)
    assert taught(1.0, price=0.2).chain == pytest.approx(0.4, abs=0.1)


def test_thresholds_stay_as_they_begin_until_a_forward_has_a_price() -> None:
    trigger = taught(0.5, price=None)
    assert (trigger.chain, trigger.token) == (0.5, 0.3)
    trigger.judged([], 0, 0.0)
    assert (trigger.chain, trigger.token) == (0.0, 0.0), "what costs nothing always pays"


@pytest.mark.parametrize("kind", ["token", "sequence"])
def test_only_the_thresholds_that_were_asked_for_are_learnt(kind: str) -> None:
    trigger = make_trigger(f"{kind}:learned")
    assert isinstance(trigger, Learned)
    for _ in range(20):
        trigger.judged([0.9, 0.1], 1, 0.3)
    assert (trigger.chain > 0.0, trigger.token > 0.0) == (kind == "sequence", kind == "token")


@pytest.mark.parametrize("value", ["0", "-0.1", "1.01", "nan", "inf", "-inf", "", "half", "0,5"])
@pytest.mark.parametrize("form", ["token:{}", "sequence:{}", "dual:{}/0.5", "dual:0.5/{}"])
def test_a_threshold_out_of_range_is_refused_in_one_line(form: str, value: str) -> None:
    with pytest.raises(
        OptionsError, match=r"a threshold of .* must be above 0 and at most 1, got '"
    ) as refused:
        get_method("sd+length:" + form.format(value))
    assert "\n" not in str(refused.value) and repr(value) in str(refused.value)


@pytest.mark.parametrize("length", ["dual", "dual:0.5", "token", "sequence", "dual:0.5/0.5/0.5"])
def test_a_trigger_that_lacks_a_threshold_is_refused(length: str) -> None:
    with pytest.raises(OptionsError, match="must be above 0 and at most 1"):
        get_method("sd+length:" + length)


@pytest.mark.parametrize(
    "name", ["specedge+length:token:0.7", "sd+tree:12x4+length:worth", "fsd+tree:12x4+length:dual:0.5/0.3"]
)
def test_triggers_go_with_chains(name: str) -> None:
    with pytest.raises(OptionsError, match="requires chains"):
        get_method(name)


def softmax_at(model: TableModel, ids: Sequence[int], temperature: float) -> list[float]:
    rows = [model.logits[state] for state in states_of(PROMPT, ids)]
    return [
        float(next_chances(row, GenerationOptions(temperature=temperature))[token])
        for row, token in zip(rows, ids, strict=True)
    ]


@pytest.mark.parametrize(("temperature", "sampled"), [(0.0, False), (0.6, False), (1.0, True)])
def test_a_chain_tells_the_drafts_own_probability_of_each_token(temperature: float, sampled: bool) -> None:
    pair = table_pair(vocab=9, unlikeness=0.5)
    drafter = ChainDrafter(DraftModel(pair.draft, GenerationOptions(16, temperature=temperature)), sampled)
    drafter.prefill(PROMPT)
    assert drafter.chain([], 4).chances == ()  # nobody asked
    drafter.prefill(PROMPT)
    drafter.tells_chances = True
    proposal = drafter.chain([], 6)
    assert len(proposal.chances) == len(proposal.draft.ids) >= 2
    assert proposal.chances == pytest.approx(
        softmax_at(pair.draft, proposal.draft.ids, temperature or 1.0), rel=1e-4
    )
    assert proposal.promise == pytest.approx(
        sum(math.prod(proposal.chances[: n + 1]) for n in range(len(proposal.chances)))
    )


def test_chances_of_what_is_drafted_aside_stay_apart() -> None:
    pair = table_pair(vocab=9, unlikeness=0.5)
    drafter = ChainDrafter(DraftModel(pair.draft, GenerationOptions(16)))
    drafter.prefill(PROMPT)
    drafter.tells_chances = True
    ids = drafter.chain([], 3).draft.ids
    other = [(ids[0] + 1) % 9 or 1]
    while drafter.step_aside(other, 3):
        pass
    assert drafter.chances([]) == pytest.approx(softmax_at(pair.draft, ids, 1.0), rel=1e-4)
    aside = drafter.take(other, 3, 3)
    assert aside.chances == pytest.approx(
        softmax_at(pair.draft, [*other, *aside.draft.ids], 1.0)[1:], rel=1e-4
    )


def test_lookups_tell_chances_by_their_counts() -> None:
    memory = SuffixMemory()
    drafter = LookupDrafter(memory)
    drafter.tells_chances = True
    drafter.prefill(Prompt((7, 1, 2, 3, 9, 1, 2, 3, 8, 1, 2)))
    assert drafter.step([], 3)
    # Endings of one token were tried at both later 2s (right) and ended there; of two at both 3s (right) ...
    sure = drafter.chances([])
    assert drafter.take([], 3, 3).draft.ids == (3, 8, 1)
    assert len(sure) == 3 and all(0.0 < chance < 1.0 for chance in sure)
    drafter.prefill(Prompt((5, 1, 4, 1, 6, 1, 2, 1, 3, 1)))  # what follows 1 is never what followed before
    assert drafter.step([], 1)
    assert drafter.chances([])[0] < sure[0]
    assert memory.chances(memory.after(3))[0] == drafter.chances([])[0]


def sent_drafts(monkeypatch: pytest.MonkeyPatch) -> list[Proposal]:
    sent: list[Proposal] = []
    original = EdgeSession.send_draft

    def listening(self: EdgeSession, proposal: Proposal, *others: object) -> None:
        sent.append(proposal)
        original(self, proposal, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(EdgeSession, "send_draft", listening)
    return sent


@pytest.mark.slow
@pytest.mark.parametrize("overlap", ["idle", "continue", "stream", "outcomes"])
@pytest.mark.parametrize("length", ["token:0.5", "sequence:0.2", "dual:0.3/0.4"])
def test_every_draft_that_leaves_ends_where_its_trigger_fires(
    monkeypatch: pytest.MonkeyPatch, overlap: str, length: str
) -> None:
    pair = endless(table_pair(vocab=9, unlikeness=0.4, sharpness=2.0))
    sent, limit = sent_drafts(monkeypatch), 60
    ids, _ = answer(f"sd+overlap:{overlap}+length:{length}", GenerationOptions(limit), pair)
    assert ids == greedy_reference(pair.target, PROMPT, limit)
    trigger, lengths = make_trigger(length), []
    assert trigger is not None
    for proposal in sent:
        end = proposal.draft.base + len(proposal.draft.ids)
        if not proposal.draft.ids or end >= limit - 1:
            continue
        assert fires_at(trigger, proposal.chances) == len(proposal.draft.ids)
        lengths.append(len(proposal.draft.ids))
    assert len(set(lengths)) > 2, "drafts are as long as they are sure, not of one length"


@pytest.mark.slow
def test_worth_drafts_longer_where_the_draft_is_surer(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, mean = sent_drafts(monkeypatch), []
    for sharpness in (0.3, 6.0):
        sent.clear()
        pair = endless(table_pair(vocab=9, unlikeness=0.0, sharpness=sharpness))
        ids, _ = answer("sd+length:worth", GenerationOptions(200), pair)
        assert ids == greedy_reference(pair.target, PROMPT, 200)
        mean.append(np.mean([proposal.promise for proposal in sent[8:]]))
    assert mean[1] > 2 * mean[0]


class BrokenAfter(TableModel):
    """A draft whose logits are not numbers from some state on."""

    def __init__(self, sound: TableModel, share: float) -> None:
        logits = sound.logits.copy()
        logits[np.random.default_rng(3).random(STATES) < share] = np.nan
        super().__init__(logits)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    ["hsl", "edgellm", "pipesd", "sd+length:worth", "sd+length:dual:learned", "sd+overlap:stream+length:token:0.5"],
)
@pytest.mark.parametrize("share", [0.2, 1.0])
def test_chances_that_are_no_numbers_end_drafting_in_one_line_and_change_no_answer(
    caplog: pytest.LogCaptureFixture, method: str, share: float
) -> None:
    sound = table_pair(vocab=9, unlikeness=0.4)
    pair = TablePair(sound.target, BrokenAfter(sound.draft, share))
    with caplog.at_level(logging.WARNING):
        ids, _ = answer(method, GenerationOptions(60), pair)
    assert ids == greedy_reference(pair.target, PROMPT, 60)
    (line,) = [record.getMessage() for record in caplog.records]
    assert (
        "chance of a token must be from 0 to 1, got nan" in line
        and "continues alone" in line
        and "\n" not in line
    )


def test_a_position_that_is_drawn_again_for_another_answer_is_drawn_by_another_number() -> None:
    """What was refuted may have decided how long drafts are, as a moving threshold does: its numbers are used up."""
    draft = TableModel(np.tile(np.log([1e-6, 0.25, 0.25, 0.25, 0.25]), (STATES, 1)))
    drafter = ChainDrafter(DraftModel(draft, GenerationOptions(64, temperature=1.0)), sampled=True)
    drafter.tells_chances = True
    drafter.prefill(PROMPT)
    first = drafter.chain([], 40).draft.ids
    assert drafter.chain([], 40).draft.ids == first
    other = drafter.chain([first[0] % 4 + 1], 39).draft.ids
    same = sum(one == two for one, two in zip(first[1:], other, strict=True))
    assert same < 25, "of 39 equal chances about 10 come out the same"


def test_a_chance_is_the_softmax_before_anything_is_cut() -> None:
    logits, tokens = torch.randn(5, 40), torch.randint(0, 40, (5,))
    for temperature in (0.0, 0.5, 1.0):
        expected = torch.softmax(logits.double() / (temperature or 1.0), -1).gather(1, tokens[:, None])[:, 0]
        assert torch.allclose(chances_of(logits, tokens, temperature).double(), expected, atol=1e-6)
        best = logits.argmax(-1) if temperature == 0.0 else tokens
        rows = zip(logits.split(1), best.tolist(), strict=True)
        one_by_one = [chance_on_cpu(row, token, temperature) for row, token in rows]
        assert one_by_one == pytest.approx(chances_of(logits, best, temperature).tolist(), abs=1e-6)


def test_the_likeliest_token_and_its_chance_are_read_at_once() -> None:
    logits = 4.0 * torch.randn(20, 3000, generator=torch.Generator().manual_seed(2))
    logits[:, 7] = -torch.inf  # a placeholder that is never drafted
    logits[3, [40, 90]] = 30.0
    best = logits.argmax(-1)
    found = [likeliest_on_cpu(row) for row in logits.split(1)]
    assert [token for token, _ in found] == best.tolist() and found[3][0] == 40
    assert [chance for _, chance in found] == pytest.approx(chances_of(logits, best, 0.0).tolist(), abs=1e-6)
    for broken in (torch.nan, torch.inf):
        logits[0, 5] = broken
        assert math.isnan(likeliest_on_cpu(logits[:1])[1])
