"""Emulated acceptance: the same prefix is always disturbed in the same way, and no answer ever shows it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import scipy.stats
import torch

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError
from specdec.errors import OptionsError
from specdec.models.plans import Prepared
from specdec.models.session import SessionCursor
from specdec.options import GenerationOptions
from specdec.sampling import disturbed
from specdec.sampling.disturbed import Disturbance
from tests.helpers.table_models import PROMPT, TableModel, TablePair
from tests.specdec.checks import SAMPLED, UNLIKE, answer, check_distribution, check_greedy
from tests.specdec.wired import WiredLink

STRENGTH = 0.8


def weaker(strength: float = STRENGTH, seed: int = 3) -> TablePair:
    """A target, and itself as the draft, disturbed."""
    draft = TableModel(UNLIKE.target.logits, UNLIKE.target.eos_token_ids)
    draft.disturbance = Disturbance(strength, seed)
    return TablePair(UNLIKE.target, draft)


def rows_by_every_way(model: TableModel, ids: Sequence[int]) -> dict[str, torch.Tensor]:
    """The row behind `ids`: step by step, as a chain, in trees of one and two steps, after a rollback."""
    found = {}
    stepping = SessionCursor(model.new_session())
    row = stepping.prefill(Prepared(model.encode(PROMPT)))[None]
    for length in range(1, len(ids) + 1):
        row = stepping.rows(ids[:length])
    found["step by step"] = row[-1]
    chain = SessionCursor(model.new_session())
    chain.prefill(Prepared(model.encode(PROMPT)))
    found["chain"] = chain.rows((), ids)[-1]
    tree = SessionCursor(model.new_session())
    tree.prefill(Prepared(model.encode(PROMPT)))
    nodes = [*ids, (ids[0] + 1) % model.vocab_size]
    found["tree"] = tree.tree_rows((), nodes, [*range(-1, len(ids) - 1), -1])[len(ids)]
    grown = SessionCursor(model.new_session())
    grown.prefill(Prepared(model.encode(PROMPT)))
    grown.tree_rows((), ids[:1], [-1])
    for place, token in enumerate(ids[1:]):
        found["grown"] = grown.grow_tree([token], [place])[-1]
    back = SessionCursor(model.new_session())
    back.prefill(Prepared(model.encode(PROMPT)))
    back.rows((), [(token + 1) % model.vocab_size for token in ids])
    found["after a rollback"] = back.rows(ids[:1], ids[1:])[-1]
    return found


def check_same_prefix_same_row() -> None:
    """Whatever asks, a prefix is disturbed in one way."""
    model = weaker().draft
    for ids in ((1, 2, 3), (4, 4, 1, 2)):
        found = rows_by_every_way(model, ids)
        for name, row in found.items():
            assert torch.equal(row, found["chain"]), f"{name} differs from the chain behind {ids}"


def test_a_prefix_is_disturbed_in_one_way_in_chains_trees_and_after_rollbacks():
    check_same_prefix_same_row()


def test_noise_keyed_by_the_order_of_calls_is_noticed(monkeypatch):
    order = itertools.count()
    monkeypatch.setattr(disturbed, "_place", lambda behind, tail: next(order) * 17)
    with pytest.raises(AssertionError, match="differs from the chain"):
        check_same_prefix_same_row()


def test_noise_depends_on_every_id_on_the_prompt_on_the_seed_and_on_nothing_else():
    rows = torch.zeros(1, 50)
    first = Disturbance(1.0, 5).after((1, 2)).noise(rows, (3, 4), [(5,)])
    assert torch.equal(first, Disturbance(2.5, 5).after((1, 2)).noise(rows, (3,), [(4, 5)]))  # where it is split
    others = [
        Disturbance(1.0, 6).after((1, 2)).noise(rows, (3, 4), [(5,)]),
        Disturbance(1.0, 5).after((1, 9)).noise(rows, (3, 4), [(5,)]),
        Disturbance(1.0, 5).after((1, 2)).noise(rows, (9, 4), [(5,)]),
        Disturbance(1.0, 5).after((1, 2)).noise(rows, (3, 4), [(6,)]),
        Disturbance(1.0, 5).after((1, 2)).noise(rows, (3, 4), [()]),
    ]
    assert not any(torch.equal(first, other) for other in others)


def test_noise_is_normal_and_as_strong_as_asked():
    tails = [(token,) for token in range(400)]
    noise = Disturbance(1.0).after((0,)).noise(torch.zeros(400, 300), (), tails)
    assert scipy.stats.kstest(noise.flatten()[::7].numpy(), "norm").pvalue > 1e-3
    assert abs(float(torch.corrcoef(noise[:, :2].T)[0, 1])) < 0.2  # of neighbouring tokens
    strong = Disturbance(2.5).after((0,)).rows(torch.zeros(400, 300), (), tails)
    assert float(strong.std()) == pytest.approx(2.5, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sd", "fsd", "specedge", "sd+overlap:stream"])
def test_greedy_answers_are_the_targets_with_a_disturbed_draft(method):
    costs = check_greedy(method, weaker(), limits=(1, 5, 24))
    assert any(one.accepted < one.drafted for cost in costs for one in cost.rounds)


@pytest.mark.slow
def test_sampled_answers_are_draws_from_the_target_with_a_disturbed_draft():
    check_distribution("dssd", SAMPLED, weaker(1.5), samples=120)


def test_without_strength_the_draft_is_the_target_and_everything_is_accepted():
    _, cost = answer("sd", GenerationOptions(24), weaker(0.0))
    assert all(one.accepted == one.drafted for one in cost.rounds[:-1])


def test_a_draft_in_the_cloud_guesses_what_the_same_draft_on_the_edge_guesses():
    pair = weaker()
    for options in (GenerationOptions(24), replace(SAMPLED, max_new_tokens=24, seed=4)):
        counts = []
        for method in ("sd", "cloud-sd"):
            link = WiredLink(pair.target, pair.draft)
            _, cost = answer(method, options, pair, link=link)
            counts.append((len(cost.rounds), sum(one.gained for one in cost.rounds)))
        assert abs(counts[0][0] - counts[1][0]) <= 1  # the edge's first draft leaves before the first token is known


@pytest.mark.parametrize("text", ["much", "1:2:3", "-1", "1:-4", "nan", "1e9", "1:x"])
def test_what_is_no_disturbance_is_one_line(text):
    with pytest.raises(OptionsError) as error:
        Disturbance.read(text)
    assert "\n" not in str(error.value)


def test_a_disturbance_is_written_as_it_is_read_and_the_server_takes_it():
    for one in (Disturbance(0.1 + 0.2, 2**62), Disturbance(0.0)):
        assert Disturbance.read(str(one)) == one
    assert Disturbance.read("") is None
    assert ServerConfig("m", draft_model="d", draft_disturbed="1.5:2").draft_disturbed == "1.5:2"
    with pytest.raises(VerifierError, match="draft_disturbed"):
        ServerConfig("m", draft_model="d", draft_disturbed=3)  # type: ignore[arg-type]
