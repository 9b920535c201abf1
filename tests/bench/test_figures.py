"""The floor and the table's rows, from answers whose times are known."""

from __future__ import annotations

import pytest

from specdec.link.shaping import LinkProfile
from specnav.bench.data.points import PaperFigure
from specnav.bench.records.floor import floor_ms, one_way_ms, union_length
from specnav.bench.records.summary import make_rows, ours_for
from specnav.results.trace import Span
from tests.bench.made_up import (
    DRAFT_MS,
    EXTRA_MS,
    TRIP_MS,
    VERIFY_MS,
    ar_answer,
    made_up_results,
    oracle_answer,
    sd_answer,
)

EVERYBODY = frozenset({"ar", "sd", "hf-generate"})


def test_union_counts_overlaps_once_and_gaps_not_at_all():
    assert union_length([(0, 2), (1, 3), (5, 6), (5.5, 5.8), (6, 7)]) == 5
    assert union_length([]) == 0


def test_floor_of_a_synchronous_answer_is_its_parts_one_after_the_other():
    answer = sd_answer("1", accepted=(4, 2))
    parts = 2 * TRIP_MS + VERIFY_MS + 2 * (DRAFT_MS + 2 * TRIP_MS + VERIFY_MS)
    assert answer.floor_ms == pytest.approx(parts)
    assert answer.wall_ms == pytest.approx(parts + 2 * EXTRA_MS)


def test_without_an_emulated_link_only_forwards_count():
    answer = sd_answer("1", accepted=(4,))
    free = floor_ms(answer.timeline, LinkProfile())
    assert free == pytest.approx(2 * VERIFY_MS + DRAFT_MS)


def exchange(left, arrives, verified, back, sizes=(20, 20), more=()):
    """Spans of one exchange as the recorder writes them; more: when further messages of the draft left."""
    ups = [Span("uplink", "draft", at, at + arrives - left, sizes[0]) for at in (left, *more)]
    cloud = Span("cloud", "verify", verified[0], verified[1])
    return [*ups, cloud, Span("downlink", "verdict", verified[1], back, sizes[1])]


LINK = LinkProfile(rtt_ms=40)
FIRST = exchange(0, 20, (20, 50), 70)


def test_drafting_ahead_while_a_verdict_is_out_fills_no_gap():
    """The verification began 10 ms late: that is overhead, whatever the edge did meanwhile."""
    ahead = [Span("edge", "draft ahead", 82, 150)]
    late = [*FIRST, Span("edge", "draft", 70, 82), *ahead, *exchange(82, 102, (112, 142), 162)]
    assert floor_ms(late, LINK) == 70 + 12 + 20 + 30 + 20


def test_drafting_that_the_next_message_waited_for_counts_even_with_another_one_in_flight():
    """The edge is the bottleneck: 100 ms a draft; each leaves while the one before is out."""
    spans = [*FIRST, Span("edge", "draft", 70, 170), *exchange(170, 190, (190, 220), 240)]
    spans[-3:-3] = [Span("edge", "draft", 170, 270)]
    spans += exchange(270, 290, (290, 320), 340)
    assert floor_ms(spans, LINK) == 70 + (100 + 70) + (30 + 70)


def test_what_a_pipeline_hides_behind_the_verdict_before_counts_nothing():
    """Drafts leave 15 ms apart and are verified one after the other: each later verdict costs one forward."""
    spans = [*FIRST, Span("edge", "draft", 70, 80), *exchange(80, 100, (100, 130), 150)]
    spans += exchange(95, 115, (130, 160), 180)
    assert floor_ms(spans, LINK) == 70 + (10 + 70) + 30


def test_a_draft_that_leaves_token_by_token_and_is_judged_as_one_counts_until_its_last_message():
    """Its first message left at 75, the rest at 90; the forward waited for the rest."""
    drafting = [Span("edge", "draft", 70, 75), Span("edge", "draft", 75, 90)]
    spans = [*FIRST, *drafting, *exchange(75, 95, (110, 140), 160, more=[90])]
    assert floor_ms(spans, LINK) == 70 + 20 + 20 + 30 + 20


def test_a_refuted_draft_is_no_part_of_the_exchange_that_refuted_it():
    wasted = Span("uplink", "refuted draft", 60, 90, 20)
    spans = [
        *FIRST[:-2],
        *FIRST[-2:],
        wasted,
        Span("edge", "draft", 70, 80),
        *exchange(80, 100, (100, 130), 150),
    ]
    assert floor_ms(spans, LINK) == 70 + 80


def test_a_large_message_takes_its_time_on_a_narrow_link():
    narrow = LinkProfile(rtt_ms=10, bandwidth_mbps=8, jitter_ms=50, loss=0.5, outages=((0.0, 1.0),))
    assert one_way_ms(1000, narrow) == pytest.approx(5 + (1000 + 66) / 1000)
    spans = exchange(10, 40, (40, 50), 90, sizes=(10_000, 100))
    up, down = one_way_ms(10_000, narrow), one_way_ms(100, narrow)
    assert floor_ms(spans, narrow) == pytest.approx(up + 10 + down)


def test_rows_hold_the_contracts_figures():
    answers = [
        a for q in ("1", "2") for a in (ar_answer(q, 12), sd_answer(q, (4, 2, 0, 1)), oracle_answer(q, 12))
    ]
    ar, sd, oracle = make_rows(answers, ["ar", "sd", "hf-generate"], EVERYBODY)
    assert (sd.questions, sd.tokens, sd.rounds, sd.draft_forwards, sd.verify_forwards) == (2, 24, 8, 32, 8)
    assert sd.tau == pytest.approx(11 / 4) and sd.acceptance == pytest.approx(7 / 16)
    assert (sd.uplink_bytes_per_round, sd.downlink_bytes_per_round, ar.uplink_bytes_per_round) == (13, 11, 0)
    assert sd.speedup_vs_ar == pytest.approx(ar_answer("1", 12).wall_ms / sd_answer("1").wall_ms)
    assert ar.speedup_vs_ar == 1 and ar.tau == 1 and ar.acceptance is None and ar.draft_forwards is None
    assert sd.overhead_over_floor == pytest.approx(1 + 4 * EXTRA_MS / (sd_answer("1").floor_ms or 0))
    assert sd.overhead_ms_per_round == pytest.approx(EXTRA_MS)
    assert ar.tpot_ms == pytest.approx(VERIFY_MS) and sd.ttft_ms == 2 * TRIP_MS + VERIFY_MS
    assert all(row.identical_to_ar for row in (ar, sd, oracle))
    assert oracle.uplink_bytes_per_round is None and oracle.overhead_over_floor is None
    assert oracle.edge_busy is None and sd.edge_busy and sd.cloud_busy


def test_one_different_id_is_not_identical():
    answers = [ar_answer("1"), ar_answer("2"), sd_answer("1"), sd_answer("2", first=1)]
    sd = make_rows(answers, ["ar", "sd"], EVERYBODY)[1]
    assert sd.identical_to_ar is False and (sd.different_answers, sd.answers) == (1, 2)


def test_a_shorter_answer_is_not_identical():
    answers = [ar_answer("1", 12), sd_answer("1", (4, 2, 0))]
    assert make_rows(answers, ["ar", "sd"], EVERYBODY)[1].identical_to_ar is False


def test_nothing_is_compared_without_ar_or_where_it_cannot_be():
    assert make_rows([sd_answer("1")], ["sd"], EVERYBODY)[0].identical_to_ar is None
    assert make_rows([sd_answer("1")], ["sd"], EVERYBODY)[0].speedup_vs_ar is None
    answers = [ar_answer("1"), oracle_answer("1")]
    assert make_rows(answers, ["ar", "hf-generate"], frozenset({"ar"}))[1].identical_to_ar is None


def test_only_questions_that_everybody_answered_count():
    answers = [ar_answer("1"), sd_answer("2"), ar_answer("2")]
    ar, sd = make_rows(answers, ["ar", "sd"], EVERYBODY)
    assert (ar.questions, sd.questions) == (1, 1)
    assert make_rows([ar_answer("1")], ["ar", "sd"], EVERYBODY)[0].tokens_per_s is None


def test_ours_stands_beside_the_papers_figure():
    rows = made_up_results()[0].rows
    speed = {row.method: row.tokens_per_s or 0 for row in rows}

    def ours(method, quantity, over="ar"):
        return ours_for(PaperFigure(method=method, quantity=quantity, value=1.0, over=over), rows)

    assert ours("sd", "speedup", "hf-generate") == pytest.approx(speed["sd"] / speed["hf-generate"])
    assert ours("sd", "tau") == pytest.approx(2.75)
    assert ours("fsd", "speedup") is None and ours("sd", "speedup", "fsd") is None
