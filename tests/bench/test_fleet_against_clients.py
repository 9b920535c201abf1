"""The simulated fleet beside real processes: one verifier, 1 and 16 real clients, the same settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from specnav.bench.records.capacity import ClientsRun
from specnav.bench.runner.clients import ask_target, measure_clients
from specnav.bench.runner.run import settings_of
from specnav.bench.settings import make_config
from specnav.paths import DEFAULT_TEXT_DRAFT
from specnav.plan.simulated.comparison import GAP_MAY, RATE_MAY, played_beside

pytest.importorskip("simpy")

METHOD = "sd"
FLAGS = {"max_new_tokens": 24, "limit": 6, "verify_ms": 120.0, "draft_ms": 15.0, "methods": (METHOD,)}
"""Paced so slowly that 16 clients on two cores mostly wait."""


@pytest.mark.graph
@pytest.mark.usefixtures("quickly_started")
@pytest.mark.skipif(not DEFAULT_TEXT_DRAFT.is_dir(), reason="needs the shipped text pair")
def test_real_clients_get_what_simulated_ones_get(tmp_path: Path) -> None:
    config = make_config(FLAGS)
    asked = ask_target(config, print)
    for clients in (1, 16):
        row = measure_clients(config, METHOD, clients, 3.0, asked, tmp_path / str(clients))
        found = played_beside(ClientsRun(rows=[row], config=dict(settings_of(config, (METHOD,)))), row)
        assert not row.wrong and not row.errors
        if row.mark:
            pytest.skip(f"the cores are busy with other work ({row.mark}, {clients} clients): {found}")
        assert abs(found.rate_off) <= RATE_MAY, found
        assert found.gap_off is not None and abs(found.gap_off) <= GAP_MAY, found
        print(found)
