"""`specnav bench study`: which flags go together, runs in their folders, resumed, drawn; once over real processes."""

from __future__ import annotations

import pytest

from specdec.row_ms import RowMs, read_ms
from specnav.bench.records.bench import BenchResults
from specnav.bench.records.study import StudyResults
from specnav.bench.runner.study import make_jobs, redraw, run_studies
from specnav.bench.studies import study_named
from specnav.errors import UsageError
from specnav.results.errors import EvaluationError
from tests.bench.made_up_studies import MadeUpRuns


@pytest.mark.slow
def test_every_setting_is_a_run_with_the_times_of_the_point_scaled(tmp_path, capsys):
    runs = MadeUpRuns()
    assert run_studies({"out": tmp_path / "s", "limit": 1}, "link,threads", 0.25, runs) == 0
    rtts = [config.rtt_ms for config in runs.configs]
    assert rtts == [0, 1.25, 3.75, 10, 20, 37.5, 62.5, 60]
    assert {(config.draft_ms, config.verify_ms.for_rows(5), config.gamma) for config in runs.configs} == {(18, 155, 4)}
    assert runs.configs[-1].out == tmp_path / "s" / "threads" / "rows" and runs.configs[0].point == ""
    link = StudyResults.load(tmp_path / "s" / "link")
    assert [one.x for one in link.settings] == [0, 5, 15, 40, 80, 150, 250] and link.asked == 7
    assert link.point.name == "go2-wifi6" and link.wall_s == 14 and not link.interrupted
    said = capsys.readouterr()
    assert "study link: 7 settings, about" in said.err and "(8 of 8, about" in said.err
    assert "Milliseconds per token after the first" in said.out
    page = (tmp_path / "s" / "report.html").read_text()
    assert 'href="link/rtt-40/report.html"' in page and 'id="threads"' in page


@pytest.mark.slow
def test_an_interrupted_study_is_drawn_and_goes_on_with_what_is_missing(tmp_path, capsys):
    flags = {"out": tmp_path / "s", "limit": 1}
    assert run_studies(flags, "gamma", 0.25, MadeUpRuns(stop_after=3)) == 130
    assert StudyResults.load(tmp_path / "s" / "gamma").interrupted
    assert "Drawn from 3 of 10 settings" in (tmp_path / "s" / "report.html").read_text()
    with pytest.raises(UsageError, match="is not empty"):
        run_studies(flags, "gamma", 0.25, MadeUpRuns())
    with pytest.raises(UsageError, match=r"cannot resume .*gamma-1: rtt_ms was 60"):
        run_studies({**flags, "resume": True}, "gamma", 0.5, MadeUpRuns())
    rest = MadeUpRuns()
    assert run_studies({**flags, "resume": True}, "gamma", 0.25, rest) == 0
    assert [config.gamma for config in rest.configs] == [4, 5, 6, 7, 8, 9, 10]
    assert "3 done already" in capsys.readouterr().err
    assert not StudyResults.load(tmp_path / "s" / "gamma").interrupted
    again = MadeUpRuns()
    assert run_studies({**flags, "resume": True}, "gamma,queues", 0.25, again) == 0
    assert len(again.configs) == 1  # a study more, in the same folder


@pytest.mark.slow
def test_a_run_that_fails_ends_the_study_with_its_reason_and_what_was_measured(tmp_path):
    failing = MadeUpRuns(stop_after=2, fail="cloud_verifier ended")
    with pytest.raises(UsageError, match="cloud_verifier ended"):
        run_studies({"out": tmp_path / "s"}, "gamma", 0.25, failing)
    assert StudyResults.load(tmp_path / "s" / "gamma").error == "cloud_verifier ended"
    assert "cloud_verifier ended" in (tmp_path / "s" / "report.html").read_text()
    nothing = MadeUpRuns(stop_after=0, fail="no model")
    with pytest.raises(UsageError, match="no model"):
        run_studies({"out": tmp_path / "t"}, "gamma", 0.25, nothing)
    assert not (tmp_path / "t" / "report.html").exists()


@pytest.mark.slow
def test_drawing_again_needs_no_run(tmp_path):
    folder = tmp_path / "s"
    run_studies({"out": folder, "limit": 1}, "gamma", 0.25, MadeUpRuns())
    page = folder / "report.html"
    before = page.read_text()
    page.unlink()
    for results in folder.glob("gamma/*/results.json"):
        results.unlink()
    assert redraw(folder) == 0 and page.read_text() == before
    with pytest.raises(EvaluationError, match="holds no study"):
        redraw(tmp_path)


def test_named_methods_take_the_place_of_the_usual_ones():
    flags = {"methods": ("sd", "specedge"), "point": "specedge-32b"}
    jobs = make_jobs(flags, [study_named("link")], 1.0)
    assert {job.config.methods for job in jobs} == {("ar", "sd", "specedge")}
    assert jobs[0].config.temperature == 0.7 and jobs[0].config.verify_ms == 94.2


def test_flags_win_over_the_point_and_are_scaled_too():
    (job,) = make_jobs({"draft_ms": 10.0, "bandwidth_mbps": 8.0, "limit": 1}, [study_named("queues")], 0.5)
    assert (job.config.draft_ms, job.config.verify_ms.for_rows(5), job.config.bandwidth_mbps) == (5, 310, 16)
    assert job.config.limit == 1 and len(job.config.methods) == 19


@pytest.mark.parametrize(
    ("flags", "name", "words"),
    [
        ({"gamma": 3}, "gamma", "leave --gamma out"),
        ({"rtt_ms": 3.0}, "link", "leave --rtt out"),
        ({"exit_layers": "all"}, "exits", "leave --exit-layers out"),
        ({"methods": ("sd",)}, "threads", "leave --methods out"),
        ({"length": "online"}, "link", "--length is not varied by a study"),
        ({"point": "go2-wifi6,rtx-llama2"}, "link", "one operating point"),
        ({"point": "all"}, "link", "one operating point"),
        ({"point": "nowhere"}, "link", "'nowhere' is unknown"),
        ({"exits": "none"}, "exits", "needs a target with early exits"),
        ({"exits": "none"}, "queues", "needs a target with early exits"),
        ({"resume": True}, "link", "name its folder with --out"),
    ],
)
def test_what_does_not_go_together_ends_the_command_before_a_folder_is_made(tmp_path, flags, name, words):
    flags = {"out": None if "resume" in flags else tmp_path / "s", **flags}
    with pytest.raises(UsageError, match=words):
        run_studies(flags, name, 0.25, MadeUpRuns())
    assert not (tmp_path / "s").exists()


@pytest.mark.graph
@pytest.mark.usefixtures("quickly_started")
@pytest.mark.timeout(600)
def test_a_small_threads_study_over_real_processes(tmp_path, capsys):
    flags = {"out": tmp_path / "s", "limit": 1, "max_new_tokens": 8}
    assert run_studies(flags, "threads", 0.02) == 0
    results = StudyResults.load(tmp_path / "s" / "threads")
    rows = {row.method: row for row in results.settings[0].rows}
    assert len(rows) == 22 and all(row.identical_to_ar for row in rows.values())
    assert rows["fsd+rows:30"].miss_rate is not None and rows["fsd+rows:0"].miss_rate == 1
    assert results.settings[0].formula("fsd+rows:5").redrafted <= 1
    page = (tmp_path / "s" / "report.html").read_text()
    assert "<svg" in page and "0.02; milliseconds are scaled back" in page and "21 of 21 runs" in page
    before = (tmp_path / "s" / "threads" / "rows" / "results.json").read_bytes()
    assert run_studies({**flags, "resume": True}, "threads", 0.02) == 0  # nothing is missing
    assert (tmp_path / "s" / "threads" / "rows" / "results.json").read_bytes() == before
    paced = read_ms(BenchResults.load(tmp_path / "s" / "threads" / "rows").config["verify_ms"])
    assert isinstance(paced, RowMs) and paced.for_rows(5) == 12.4
    assert "fsd+rows:5" in (tmp_path / "s" / "threads" / "rows" / "report.html").read_text().replace(
        "<wbr>", ""
    )
