"""The latency and cost models give the figures that the papers print."""

import math

import pytest

from specnav.bench.data import latency
from specnav.bench.data.papers import figures
from specnav.bench.studies.cost import CostAsked, Price, api_cost, kilotokens_per_dollar


@pytest.mark.parametrize("row", figures()["fsd_000"]["api_cost"]["rows"], ids=lambda row: row["target"])
def test_api_costs_equal_the_early_exit_papers_table_to_the_dollar(row):
    cost = api_cost(Price(*row["target_price"]), Price(*row["draft_price"]), CostAsked())
    for method in ("cloud_ar", "cloud_sd", "edge_sd"):
        # Whole dollars, truncated as printed; the small term undoes binary rounding of e.g. 269.99999999.
        assert math.floor(cost[method] + 1e-6) == row[method], method


@pytest.mark.parametrize("gamma", [2, 4, 6, 8])
def test_dssd_communication_times_to_a_hundredth_of_a_millisecond(gamma):
    table = figures()["dssd_003"]["comm_time"][gamma]
    assert len(table) == 6
    for alpha, (rejection, t_comm) in table.items():
        assert latency.dssd_comm(alpha, gamma, t_row=8.0, t_ntt=20.0) == pytest.approx(t_comm, abs=0.0051)
        assert 1 - alpha**gamma == pytest.approx(rejection, abs=0.0051)


@pytest.mark.parametrize("pair", ["qwen3_14b_1.7b", "qwen3_14b_0.6b"])
def test_specedge_cost_efficiency_within_one_percent(pair):
    prices = figures()["specedge_001"]["prices_per_hour"]
    for task, row in figures()["specedge_001"]["specbench"][pair].items():
        server_only, specedge, server_only_per_dollar, specedge_per_dollar = row[:4]
        assert kilotokens_per_dollar(server_only, prices["a100_40"]) == pytest.approx(
            server_only_per_dollar, rel=0.01
        ), task
        ours = kilotokens_per_dollar(specedge, prices["a100_40"], edges=2, edge_per_hour=prices["rtx4090"])
        assert ours == pytest.approx(specedge_per_dollar, rel=0.01), task


def test_fsd_without_misses_and_synchronisation_hides_drafting_entirely():
    time = latency.fsd(10, 2, 4, t_draft=5, t_verify=20, t_link=3, miss=0, t_sync=0)
    assert time == 10 / 2 * (2 * 3 + 20)
    assert latency.fsd(10, 2, 4, 5, 20, 3, miss=1, t_sync=9) == latency.edge_sd(10, 2, 4, 5, 20, 3)


def test_equation_9_is_the_ratio_of_the_two_latency_formulas_without_a_link():
    sd = latency.edge_sd(100, 2.5, 4, t_draft=30, t_verify=100, t_link=0)
    fsd = latency.fsd(100, 2.5, 4, t_draft=30, t_verify=100, t_link=0, miss=0.4, t_sync=0)
    assert sd / fsd == pytest.approx(latency.fsd_speedup_over_sd(4, 0.3, 0.4))


def test_expected_tokens_of_a_round():
    assert latency.expected_tokens(0, 4) == 1
    assert latency.expected_tokens(1, 4) == 5
    assert latency.expected_tokens(0.5, 2) == pytest.approx(1 + 0.5 + 0.25)
    with pytest.raises(ValueError, match="probability"):
        latency.expected_tokens(1.5, 4)


def test_picospec_pipeline_hides_the_shorter_side_on_a_full_hit():
    assert latency.picospec_round(1.0, 4, t_draft_batch=30, t_verify=50, rtt=40) == 90
    assert latency.picospec_round(0.0, 4, t_draft_batch=30, t_verify=50, rtt=40) == 120
