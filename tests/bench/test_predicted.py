"""What the papers' formulas make of a run: the made-up answers' own parts give back their own times."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from specnav.bench.data import latency
from specnav.bench.data.points import PaperFigure
from specnav.bench.records.predicted import (
    CLOUD_SD,
    HINTED,
    PIPELINED,
    PREDRAFTED,
    SPLIT,
    SYNCHRONOUS,
    Parts,
    formula_of,
    parts_of,
    predictions_of,
)
from specnav.bench.records.summary import make_rows
from specnav.results.trace import Span
from tests.bench.made_up import (
    DRAFT_MS,
    TRIP_MS,
    VERIFY_MS,
    ar_answer,
    made_up_results,
    oracle_answer,
    sd_answer,
)

METHODS = ["sd", "ar", "hf-generate"]


def predicted(figures=(), accepted=(4, 2, 0, 1)):
    answers = {"sd": [sd_answer("1", accepted)], "ar": [ar_answer("1")], "hf-generate": [oracle_answer("1")]}
    rows = make_rows([one for found in answers.values() for one in found], METHODS, frozenset(METHODS))
    return {one.method: one for one in predictions(rows, answers, figures)}


def predictions(rows, answers, figures=()):
    made = made_up_results()[0]
    point = msgspec.structs.replace(made.point, figures=list(figures))
    return predictions_of(msgspec.structs.replace(made, rows=rows, point=point), answers)


def test_a_synchronous_run_takes_what_its_formula_says_plus_its_overhead():
    found = predicted()
    assert set(found) == {"sd", "ar"}  # an oracle is in no paper
    sd = found["sd"]
    assert sd.parts.tau == 11 / 4 and sd.parts.alpha == pytest.approx(7 / 10) and sd.parts.miss == 1
    assert sd.predicted_token == pytest.approx((2 * TRIP_MS + DRAFT_MS + VERIFY_MS) / (11 / 4))
    assert sd.predicted_token < sd.measured_token < 1.03 * sd.predicted_token
    assert sd.predicted_speedup == pytest.approx(sd.measured_speedup, rel=0.06)


def test_the_papers_acceptance_is_put_in_place_of_ours():
    worse = (0, 0, 1, 0)
    at_2_75 = predicted(accepted=(4, 2, 0, 1))["sd"].predicted_speedup
    figures = [
        PaperFigure(method="sd", quantity="speedup", value=at_2_75),
        PaperFigure(method="sd", quantity="tau", value=2.75),
    ]
    sd = predicted(figures, worse)["sd"]
    assert sd.measured_speedup < 0.7 * at_2_75
    assert sd.with_paper_acceptance == pytest.approx(at_2_75, rel=0.1)


def test_every_kind_of_method_has_its_formula():
    kinds = {
        "cloud-sd": CLOUD_SD,
        "split": SPLIT,
        "dssd-thin": SYNCHRONOUS,
        "sd+tree:8x3": SYNCHRONOUS,
        "specedge": PREDRAFTED,
        "picospec": PIPELINED,
        "sd+overlap:stream": PIPELINED,
    }
    assert {name: formula_of(name) for name in kinds} == kinds
    assert formula_of("hf-assisted") is None


def test_formulas_add_up_as_the_papers_do():
    parts = Parts(tau=3.0, alpha=0.8, drafted=4.0, draft=100.0, verify=70.0, link=50.0, miss=0.25)
    assert SYNCHRONOUS.a_token(parts) == pytest.approx(220 / 3)
    assert PREDRAFTED.a_token(parts) == pytest.approx((50 + 25 + 70) / 3)
    assert PIPELINED.a_token(parts) == pytest.approx((0.8**4 * 120 + (1 - 0.8**4) * 220) / 3)
    assert SPLIT.a_token(parts) == 220 and CLOUD_SD.a_token(parts) == pytest.approx(70 / 3)


def test_the_printed_accepted_length_of_picospec_gives_its_printed_tokens_a_round():
    """20.19 tokens/s at 148.84 ms a round are 3.0 tokens: 2.5 accepted, and one more only after a rejection."""
    alpha = latency.acceptance_for(2.5 + 1, 4)
    assert latency.expected_tokens(alpha, 4) == pytest.approx(3.5)
    assert 2.5 + 1 - alpha**4 == pytest.approx(20.19 * 0.14884, rel=0.02)


def test_bytes_take_their_time_on_a_narrow_link():
    parts = parts_of([sd_answer("1")], rtt_ms=40.0, bandwidth_mbps=0.1)
    assert parts.link == pytest.approx(40.0 + (13 + 11) * 8 / 100)


def test_a_method_that_prepares_for_verdicts_pays_for_the_share_it_had_to_draft_after_them():
    """Half of the draft tokens stood ready, so that a round's drafting took half of what all of them take."""
    answers = {"fsd": [sd_answer("1", method="fsd")], "ar": [ar_answer("1")]}
    rows = make_rows([one for found in answers.values() for one in found], ["fsd", "ar"], frozenset())
    rows[0] = msgspec.structs.replace(rows[0], redrafted=0.5, sync_ms=2.0)
    half = [replace(one, ready=2, sync_ms=2.0, draft_ms=DRAFT_MS / 2) for one in answers["fsd"][0].rounds]
    answers["fsd"] = [msgspec.structs.replace(answers["fsd"][0], rounds=half)]
    fsd = predictions(rows, answers)[0]
    assert fsd.formula is HINTED and (fsd.parts.draft, fsd.parts.miss, fsd.parts.sync) == (DRAFT_MS, 0.5, 2.0)
    round_ms = 2 * TRIP_MS + 0.5 * DRAFT_MS + 0.5 * 2.0 + VERIFY_MS
    assert fsd.predicted_token == pytest.approx(round_ms / (11 / 4))
    assert fsd.difference == pytest.approx(fsd.measured_token / fsd.predicted_token - 1)


@pytest.mark.parametrize("overlap", ["hints", "guesses", "outcomes"])
def test_every_way_to_prepare_for_verdicts_has_the_early_exits_formula(overlap):
    assert formula_of(f"fsd+overlap:{overlap}+rows:3") is HINTED
    parts = Parts(tau=2.0, alpha=0.5, drafted=4.0, draft=100.0, verify=70.0, link=50.0, miss=0.25, sync=8.0)
    assert HINTED.a_token(parts) == pytest.approx(latency.fsd(1, 2.0, 4, 25.0, 70.0, 25.0, 0.25, 8.0))


def test_drafting_while_a_verdict_is_out_costs_nothing_however_much_of_it_there_is():
    """Drafting took as long again while verdicts were out: half of it followed one."""
    answer = sd_answer("1", method="specedge")
    drafts = [one for one in answer.timeline if one.lane == "edge"]
    ahead = [Span("edge", "draft ahead", one.end_ms, one.end_ms + DRAFT_MS) for one in drafts]
    longer = [replace(one, draft_ms=2 * DRAFT_MS) for one in answer.rounds]
    answer = msgspec.structs.replace(answer, rounds=longer, timeline=[*answer.timeline, *ahead])
    answers = {"specedge": [answer], "ar": [ar_answer("1")]}
    rows = make_rows([one for found in answers.values() for one in found], ["specedge", "ar"], frozenset())
    (one, _) = predictions(rows, answers)
    assert one.formula is PREDRAFTED and one.parts.miss == pytest.approx(0.5)
    assert one.predicted_token == pytest.approx((2 * TRIP_MS + DRAFT_MS + VERIFY_MS) / (11 / 4))
