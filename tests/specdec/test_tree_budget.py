"""Trees are as large as the rows of a verification are cheap."""

from __future__ import annotations

import pytest

from specdec.drafting.tree_budget import nodes_worth_sending
from specdec.edge.controller import TREE_BUDGET, Controller
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import OptionsError
from specdec.estimates.measured import Measured
from specdec.estimates.tree_acceptance import TreeAcceptance
from specdec.methods import get_method
from specdec.models import chat_prompt
from specdec.models.local import generate_local
from specdec.models.timing.pacing import pace
from specdec.options import GenerationOptions
from specdec.row_ms import RowMs
from tests.helpers.servers import Pair, StartServer, patiently_connected
from tests.specdec.checks import check_greedy
from tests.specdec.controllers import knowing

CHANCES = [0.7 * 0.85**place for place in range(32)]
CLIFF = [(1, 100_000), (4, 100_000), (5, 500_000), (32, 500_000)]
FREE = [(1, 100_000), (32, 100_000)]


def told(row_us: list[tuple[int, int]]) -> Measured:
    figures = Measured()
    figures.told(row_us)
    figures.streamed(1, row_us[0][1] / 1e6, drafted=0)
    return figures


@pytest.mark.parametrize("rate", [None, 9.0])
def test_before_a_cliff_all_rows_are_filled_and_behind_it_none(rate: float | None) -> None:
    nodes = nodes_worth_sending(CHANCES, told(CLIFF).cloud_forwards.measured_s, 0.05, rate)
    assert nodes + 1 == 4


@pytest.mark.parametrize("rate", [None, 5.0])
def test_where_rows_are_free_the_whole_budget_goes(rate: float | None) -> None:
    assert nodes_worth_sending(CHANCES, told(FREE).cloud_forwards.measured_s, 0.05, rate) == 32


def test_where_nobody_knows_what_rows_take_the_whole_budget_goes() -> None:
    assert nodes_worth_sending(CHANCES, Measured().cloud_forwards.measured_s, 0.05) == 32


def test_the_dearer_a_row_the_smaller_the_tree() -> None:
    sizes = []
    for row_s in (0.0005, 0.005, 0.02, 0.1):
        sizes.append(nodes_worth_sending(CHANCES, lambda rows, row_s=row_s: 0.1 + row_s * rows, 0.05))  # type: ignore[misc]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[1] > sizes[-1] >= 1


def test_what_a_smaller_tree_would_have_brought_is_counted_node_by_node() -> None:
    seen = TreeAcceptance()
    for _ in range(300):  # a chain of the likeliest, and one node beside its first
        seen.add((0, 1, 2, 3), (0, 0, 1, 2), (0, 2))
    assert seen.expected(3, 1) == pytest.approx(2.0, abs=0.05)
    assert seen.expected(3, 2) == pytest.approx(2.0, abs=0.05), "the second likeliest was never right"
    assert seen.expected(3, 3) == seen.expected(3, 32) == pytest.approx(3.0, abs=0.1)
    assert seen.expected(1, 32) == pytest.approx(2.0, abs=0.05)
    assert seen.expected(8, 32) == pytest.approx(3.0, abs=0.1), "the third level was never right: no more below it"


def looked_at(figures: Measured) -> Measured:
    """Trees of 32 nodes that are right now and then, the likeliest most often."""
    for turn in range(200):
        right = [rank for rank in range(32) if (turn * 0.618) % 1.0 < 0.6 * 0.85**rank]
        figures.nodes.add(range(32), [rank // 4 for rank in range(32)], right)
    return figures


def test_auto_thinks_of_trees_as_large_as_pay() -> None:
    plans = {}
    for name, row_us in {"cliff": CLIFF, "free": FREE}.items():
        figures = looked_at(knowing(0.01, 0.1, 0.05, 0.1, 0.5))
        figures.told(row_us)
        plans[name] = Controller(figures, 4)._tree()
    assert plans["cliff"].budget + 1 <= 4
    assert plans["free"].budget == TREE_BUDGET


def test_only_a_method_that_is_told_to_sends_less_than_its_budget() -> None:
    assert get_method("specedge").nodes == get_method("sd+tree:32x6").nodes == "all"
    assert get_method("specedge+nodes:paid").nodes == get_method("auto").nodes == "paid"
    with pytest.raises(OptionsError, match="requires a token tree"):
        get_method("sd+nodes:paid")
    with pytest.raises(OptionsError, match="choose all or paid"):
        get_method("specedge+nodes:few")


@pytest.mark.slow
@pytest.mark.parametrize("prices", [CLIFF, FREE], ids=["cliff", "free"])
def test_over_a_link_no_tree_goes_beyond_a_cliff_and_a_whole_one_goes_where_rows_are_free(
    text_pair: Pair, start_server: StartServer, prices: list[tuple[int, int]]
) -> None:
    """Forwards a tenth as long as the verifier says."""
    server = start_server(text_pair.target)
    server.server.tell_prices(prices)
    pace(text_pair.target, RowMs(tuple((rows, us / 1e4) for rows, us in prices)))
    prompt, options = chat_prompt(text_pair.target, "where to?"), GenerationOptions(24)
    try:
        with patiently_connected(server.address) as link:
            decoder = EdgeDecoder(link, text_pair.draft, "sd+tree:32x4+nodes:paid")
            answer = [token for chunk in decoder.generate(prompt, options) for token in chunk]
        sent = [one.drafted for one in decoder.stats.rounds]
    finally:
        pace(text_pair.target, 0.0)
    assert answer == generate_local(text_pair.target, prompt, options)
    assert max(sent) == (3 if prices is CLIFF else 32), sent


@pytest.mark.parametrize("method", ["specedge+nodes:paid", "fsd+tree:8x3+nodes:paid"])
def test_answers_stay_the_targets(method: str) -> None:
    costs = check_greedy(method)
    assert sum(one.drafted for cost in costs for one in cost.rounds) > 0
