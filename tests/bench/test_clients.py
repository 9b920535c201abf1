"""`specnav bench clients`: the table from what clients saw, mistakes in one line, and once over real processes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from specdec.edge.stats import RoundStats
from specnav.bench.records.capacity import CLIENTS_FILE, ClientsRow
from specnav.bench.runner.client import ClientRecord
from specnav.bench.runner.clients import ClientQuestions, numbers_of, run_capacity, summarise, table
from specnav.bench.runner.watch import Between, LoadSample, between, metrics_of
from specnav.errors import HarnessError, UsageError
from specnav.top.scrape import MetricSample, Scrape

SEEN = Between({"idle_share": 0.25}, 0.4, 0.3)


def round_of(number: int) -> RoundStats:
    return RoundStats(4, 1, 0, 0, 0.0, 50.0, 40.0, 2, queue_ms=10.0 * number, batch=number)


def client(number: int, every_s: float, wrong: bool = False, error: str = "") -> ClientRecord:
    """Gets two tokens every this many seconds from second 0 to 20, and has answered question 0."""
    times = [every_s * step for step in range(int(20 / every_s))]
    return ClientRecord(
        chunks=[(at, 2) for at in times],
        rounds=[(at, round_of(number)) for at in times],
        answers=[(0, (1, 9) if wrong else (1, 2))],
        error=error,
    )


def test_rates_are_of_the_time_when_all_were_asking() -> None:
    records = [client(1, 0.1), client(2, 0.2), client(3, 0.4, wrong=True, error="lost")]
    row = summarise("sd", records, 5.0, 15.0, [(1, 2)], SEEN)
    assert row.rate == pytest.approx(20 + 10 + 5, abs=1.0)
    assert row.median == pytest.approx(10, abs=0.5) and row.slow == pytest.approx(5, abs=0.5)
    assert (row.clients, row.answers, row.wrong, row.errors) == (3, 3, 1, ["lost"])
    assert (row.tokens_a_round, row.rows, row.mark) == (2.0, 5.0, "")
    assert row.verify_ms == 40.0 and 10.0 <= row.queue_ms <= 30.0 and 1 < row.batch < 3


def test_the_table_compares_with_one_client() -> None:
    one = summarise("sd", [client(1, 0.2)], 5.0, 15.0, [(1, 2)], SEEN)
    busy = Between({"idle_share": 0.1}, 0.95, 0.9)
    three = summarise("sd", [client(number, 0.2) for number in (1, 2, 3)], 5.0, 15.0, [(1, 2)], busy)
    console = Console(width=80, record=True)
    console.print(table([one, three]))
    said = console.export_text()
    assert "3.00" in said and "0/3" in said and "sd" in said
    assert "95%!" in said and "the verifier is not the limit" in " ".join(said.split())


@pytest.mark.parametrize("words", ["0", "1,x", "", "1000", "-2", "1;2"])
def test_numbers_that_are_none_are_one_line(words: str) -> None:
    with pytest.raises(UsageError, match=r"give e\.g\. 1,8,16"):
        numbers_of(words)
    assert numbers_of("1,8") == [1, 8]


def scraped(at_s: float, *counts: float) -> Scrape:
    """Forwards, sessions, rows and seconds."""
    names = ("forwards_total", "forward_sessions_total", "forward_rows_total", "forward_seconds_total")
    return Scrape(at_s, {name: [MetricSample({}, count)] for name, count in zip(names, counts, strict=True)})


def test_two_looks_make_the_figures_of_the_time_between() -> None:
    before = LoadSample(scraped(100.0, 10, 20, 50, 1.0), 300.0, 600.0, 5.0)
    after = LoadSample(scraped(110.0, 110, 520, 2550, 9.0), 302.0, 620.0, 15.0)
    seen = between(before, after)
    assert seen.server == {
        "forwards": 100, "forwards_per_s": 10.0, "sessions_a_forward": 5.0, "rows_a_forward": 25.0, "forward_ms": 80.0,
        "idle_share": 0.2,
    }  # fmt: skip
    assert (seen.cores_busy, seen.cores_ours) == (0.9, 0.5)
    assert between(before, before).server["forward_ms"] == 0


@pytest.mark.parametrize(
    ("busy", "ours", "mark"), [(0.5, 0.4, ""), (0.9, 0.1, ""), (0.95, 0.9, "client-bound"), (1.0, 0.3, "disturbed")]
)
def test_busy_cores_are_the_clients_or_mostly_others(busy: float, ours: float, mark: str) -> None:
    row = summarise("sd", [client(1, 0.2)], 5.0, 15.0, [(1, 2)], Between({}, busy, ours))
    assert row.mark == mark and row.cores_others == pytest.approx(busy - ours)


def test_what_was_measured_before_an_error_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(config: object, method: str, count: int, *_: object) -> ClientsRow:
        if count == 2:
            raise HarnessError("a client did not end")
        return summarise(method, [client(1, 0.2)], 5.0, 15.0, [(1, 2)], SEEN)

    monkeypatch.setattr("specnav.bench.runner.clients.ask_target", lambda *_: ClientQuestions([], [], None, None))
    monkeypatch.setattr("specnav.bench.runner.clients.measure_clients", measured)
    with pytest.raises(UsageError, match="did not end"):
        run_capacity({"methods": ("sd",), "out": tmp_path / "run"}, "1,2", 1.0, ())
    written = msgspec.json.decode((tmp_path / "run" / CLIENTS_FILE).read_bytes())
    assert [row["clients"] for row in written["rows"]] == [1]


def test_a_log_without_metrics_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"event": "ready"}\n')
    with pytest.raises(HarnessError, match="does not say where its metrics are"):
        metrics_of(log)
    log.write_text('{"event": "metrics", "bind": "127.0.0.1:9"}\n')
    assert metrics_of(log) == "127.0.0.1:9"


@pytest.mark.graph
@pytest.mark.usefixtures("quickly_started")
def test_two_clients_share_a_verifier(tmp_path: Path, model_root: Path, capsys: pytest.CaptureFixture) -> None:
    flags = {
        "methods": ("sd",),
        "max_new_tokens": 16,
        "verify_ms": 10.0,
        "out": tmp_path / "run",
        "target_model": str(model_root / "text-target"),
        "draft_model": str(model_root / "text-draft"),
    }
    assert run_capacity(flags, "2", 1.0, ()) == 0
    written = msgspec.json.decode((tmp_path / "run" / CLIENTS_FILE).read_bytes())
    (row,) = written["rows"]
    assert row["clients"] == 2 and row["rate"] > 0 and row["answers"] > 0 and row["wrong"] == 0
    assert row["errors"] == [] and row["server"]["forwards"] > 0
    assert "sd" in capsys.readouterr().out
