"""Several operating points in one folder: run, resumed, and drawn over all."""

from __future__ import annotations

import msgspec
import pytest

from specdec.errors import OptionsError
from specdec.methods import METHODS
from specnav.bench.data.points import POINTS
from specnav.bench.records.bench import BenchJournal, BenchResults
from specnav.bench.report.points import INDEX_FILE, MARKDOWN_FILE, write_points
from specnav.bench.runner.points import point_names, run_points
from specnav.bench.runner.run import methods_of
from specnav.bench.settings import make_config
from specnav.errors import UsageError
from specnav.results.errors import EvaluationError
from tests.bench.made_up import made_up_results
from tests.bench.made_up_studies import MadeUpRuns

POINT = """
title: {name}
models: two small ones
source: nowhere
rtt_ms: {rtt}
verify_ms: 2
explained: >
  The {name} explains itself.
figures:
  - {{method: sd, quantity: speedup, value: fsd_000.robot.ar_sd}}
  - {{method: fsd, quantity: speedup, over: sd, value: fsd_000.robot.sd_fsd}}
"""


@pytest.fixture
def flags(model_root, tmp_path):
    for name, rtt in (("near", 4), ("far-6.7b", 12)):
        (tmp_path / f"{name}.yaml").write_text(POINT.format(name=name, rtt=rtt))
    return {
        "point": f"{tmp_path / 'near.yaml'},{tmp_path / 'far-6.7b.yaml'}",
        "methods": ("ar", "sd"),
        "limit": 1,
        "max_new_tokens": 6,
        "target_model": str(model_root / "text-target"),
        "draft_model": str(model_root / "text-draft"),
        "out": tmp_path / "all",
    }


def test_a_page_over_all_points_says_ours_and_the_papers(tmp_path):
    results, answers = made_up_results()
    results = msgspec.structs.replace(
        results, point=msgspec.structs.replace(results.point, explained="The pair is another one.")
    )
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        journal = BenchJournal(tmp_path / name, lambda found: results)
        journal.add(answers)
        journal.settle()
    page = write_points(tmp_path, pytest.fail).read_text()
    assert page.startswith("<!doctype html>") and 'href="one/report.html"' in page and "http" not in page
    text = (tmp_path / MARKDOWN_FILE).read_text()
    assert "| method | one | two |" in text and "/ 1.50 |" in text and "/ 2.50 |" in text
    assert "The pair is another one." in text and "The pair is another one." in page
    assert "fsd over sd: paper 1.30×, ours not in this run" in text
    with pytest.raises(EvaluationError, match="no run"):
        write_points(tmp_path / "one", pytest.fail)


@pytest.mark.slow
def test_points_run_one_after_the_other_and_go_on_where_they_stopped(flags, monkeypatch, capsys):
    """With made-up runs; real ones: tests/bench/test_bench_run.py."""
    begun, rest = MadeUpRuns(stop_after=1), MadeUpRuns()
    monkeypatch.setattr("specnav.bench.runner.points.run_bench", begun)
    assert run_points(flags) == 130
    folder = flags["out"]
    assert {path.name for path in folder.iterdir()} == {"near", INDEX_FILE, MARKDOWN_FILE}
    monkeypatch.setattr("specnav.bench.runner.points.run_bench", rest)
    assert run_points({**flags, "resume": True}) == 0
    assert [config.rtt_ms for config in (*begun.configs, *rest.configs)] == [4, 12]
    assert BenchResults.load(folder / "far-6.7b").config["rtt_ms"] == 12
    assert "The near explains itself." in (folder / "near" / "report.html").read_text()
    assert "is done" in capsys.readouterr().err
    with pytest.raises(UsageError, match="is not empty"):
        run_points(flags)


def test_one_point_and_a_comma_is_one_point(flags, monkeypatch):
    runs = MadeUpRuns()
    monkeypatch.setattr("specnav.bench.runner.points.run_bench", runs)
    assert run_points({**flags, "point": "go2-wifi6,"}) == 0
    assert [config.point for config in runs.configs] == ["go2-wifi6"]


def test_names_of_points():
    assert point_names(None) == [] and point_names("go2-wifi6") == ["go2-wifi6"]
    assert len(point_names("all")) == len(list(POINTS.glob("*.yaml")))
    with pytest.raises(UsageError, match="twice"):
        point_names("a,b,a")
    assert point_names("a-1.5b,a-1.7b") == ["a-1.5b", "a-1.7b"]
    with pytest.raises(UsageError, match="twice"):
        point_names("a-1.5b,there/a-1.5b.yaml")


def test_a_wrong_flag_ends_the_command_before_a_folder_is_made(flags):
    with pytest.raises(OptionsError, match="length 'long' is unknown"):
        run_points({**flags, "length": "long"})
    with pytest.raises(UsageError, match="holds no runs"):
        run_points({**flags, "resume": True})
    assert not flags["out"].exists()


class TestAxesAsFlags:
    def config(self, flags, **more):
        return make_config({**flags, "point": None, **more})

    def test_are_given_to_the_methods_that_draft(self, flags):
        methods = ("ar", "sd", "dssd+resample:row", "hf-generate")
        names, left_out = methods_of(
            self.config(flags, methods=methods, resample="samples:4", length="online")
        )
        assert names == (
            "ar",
            "sd+resample:samples:4+length:online",
            "dssd+resample:row+length:online",
            "hf-generate",
        )
        assert left_out == ""

    def test_of_all_methods_those_stay_out_that_do_not_go_with_them(self, flags):
        names, left_out = methods_of(self.config(flags, methods=(), resample="samples:4"))
        assert all(name in left_out for name in ("specedge", "fsd", "ngram"))
        assert "split" in names and len(names) == len(METHODS) - 3
        with pytest.raises(OptionsError, match="specedge"):
            methods_of(self.config(flags, methods=("ar", "specedge"), resample="samples:4"))

    def test_outages_make_a_link(self, flags):
        config = self.config(flags, outages=("1:0.5", "3:1"))
        assert config.link_is_emulated and config.profile().outages == ((1.0, 0.5), (3.0, 1.0))
        with pytest.raises(OptionsError, match="START:DURATION"):
            self.config(flags, outages=("1",))
