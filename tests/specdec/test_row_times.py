"""What forwards take by their rows: tried as a draft is loaded, and used before anything was measured."""

from __future__ import annotations

from io import StringIO

import pytest

from cloud_verifier import serving
from cloud_verifier.config import ServerConfig
from cloud_verifier.logs import EventLog
from specdec.drafting.row_prices import RowPrices
from specdec.edge.decoder import EdgeDecoder
from specdec.estimates.measured import Measured
from specdec.isolation.workers import Launcher
from specdec.models import load_draft
from specdec.models.timing.pacing import pace
from specdec.models.timing.row_times import ROWS_TRIED, paced_row_times
from specdec.row_ms import read_ms
from tests.helpers import tiny_models as tiny

CLIFF = [(1, 8_000), (2, 8_000), (4, 8_000), (8, 20_000)]
VALUES = [0.5, 0.3, 0.2, 0.1, 0.05]


def test_a_draft_is_tried_as_it_is_loaded_and_pacing_counts() -> None:
    draft = load_draft(tiny.built_pairs() / "text-draft")
    assert [rows for rows, _ in draft.row_us] == list(ROWS_TRIED)
    pace(draft, read_ms("40:1,90:32"))
    assert paced_row_times(draft)[0] == (1, 40_000) and paced_row_times(draft)[-1] == (32, 90_000)


def test_an_edge_knows_what_its_draft_takes_before_the_first_answer() -> None:
    draft = load_draft(tiny.built_pairs() / "text-draft")
    measured = EdgeDecoder(None, draft, "fsd")._measured  # type: ignore[arg-type]
    assert measured.draft_s == pytest.approx(draft.row_us[0][1] / 1e6) and measured.draft_forwards.was_told


@pytest.mark.parametrize("drafts", [True, False])
def test_a_verifier_tells_what_its_models_take_as_they_are_paced(monkeypatch: pytest.MonkeyPatch, drafts: bool) -> None:
    told: list[tuple[list[tuple[int, int]], int]] = []

    class Told:
        """Stands in for a server, which would open sockets."""

        def __init__(self, *given: object, **more: object) -> None: ...

        def tell_prices(self, row_us: list[tuple[int, int]], draft_us: int) -> None:
            told.append((row_us, draft_us))

    monkeypatch.setattr(serving, "Server", Told)
    pairs = tiny.built_pairs()
    config = ServerConfig(
        str(pairs / "text-target"),
        draft_model=str(pairs / "text-draft") if drafts else "",
        verify_ms=read_ms("50:1,90:32"),
        draft_ms=read_ms("40:1,90:32"),
    )
    serving._own_server(config, EventLog(StringIO()), None, Launcher())
    ((row_us, draft_us),) = told
    assert (row_us[0], row_us[-1]) == ((1, 50_000), (32, 90_000)) and draft_us == (40_000 if drafts else 0)


def test_what_was_told_holds_until_something_is_measured_and_bends_what_is() -> None:
    measured = Measured()
    assert measured.draft_s is None and measured.draft_rows_s(3) is None and not measured.draft_forwards.was_told
    measured.draft_forwards.told(CLIFF)
    assert measured.draft_s == 0.008 and measured.draft_rows_s(3) == 0.008 and measured.draft_rows_s(6) == 0.014
    measured.drafted(0.016, 1)  # twice as long as reported: so are those of more rows
    assert measured.draft_s == 0.016 and measured.draft_rows_s(8) == pytest.approx(0.040, rel=0.01)
    measured.drafted(0.050, 8)
    assert measured.draft_rows_s(8) == pytest.approx(0.050, rel=0.02)


@pytest.mark.parametrize("told", [True, False])
def test_no_forward_is_spent_on_trying_what_was_told(told: bool) -> None:
    measured = Measured()
    measured.draft_forwards.told(CLIFF)
    prices = RowPrices(8)
    prices.price_s, prices.tried = measured.draft_rows_s, told
    first = prices.beside(VALUES)
    assert first == (3 if told else 0)  # as many rows as come before the cliff; else one row is tried alone
