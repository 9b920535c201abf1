"""Studies as data: what they ask for, what they make of what was measured, and how that is drawn."""

from __future__ import annotations

import msgspec
import pytest

from specdec.methods import get_method
from specnav.bench.data.points import load_point
from specnav.bench.records.study import StudyResults, load_studies
from specnav.bench.report.studies import REPORT_FILE, write_studies
from specnav.bench.runner.study import START_S, answer_s, in_words
from specnav.bench.settings import BenchConfig
from specnav.bench.studies import STUDIES, study_named, study_names
from specnav.bench.studies.figures import crossings, system_of, systems
from specnav.bench.studies.plan import StudyRequest
from specnav.report.charts import ChartLine, LineChart, RowChart, RowSeries, colours_of, line_chart, row_chart
from specnav.results.errors import EvaluationError
from tests.bench.made_up_studies import ASKED, made_up_study


def read(name: str, **more):
    return study_named(name).read(made_up_study(name, **more))


@pytest.mark.parametrize("name", STUDIES)
def test_every_method_of_every_setting_is_one_and_every_setting_has_its_folder(name):
    settings = study_named(name).settings(ASKED)
    for setting in settings:
        assert len(set(setting.methods)) == len(setting.methods)
        assert all(get_method(method) for method in setting.methods)
        assert setting.changes.keys() == study_named(name).sets
    assert len({setting.folder for setting in settings}) == len(settings)


def test_studies_are_named_singly_by_commas_or_all():
    assert study_names("gamma") == ["gamma"] and study_names("link, exits") == ["link", "exits"]
    assert study_names("all") == ["threads", "gamma", "queues", "exits", "link", "ablation", "comm"]
    assert study_names("batch") == ["batch"]
    for wrong in ("gama", "", ",", "gamma,all"):
        with pytest.raises(EvaluationError, match="choose threads, gamma, queues, exits, link"):
            study_names(wrong)
    with pytest.raises(EvaluationError, match="twice"):
        study_names("link,link")
    with pytest.raises(EvaluationError, match="clients must be named alone"):
        study_names("link,clients")


def test_named_methods_replace_the_usual_ones_and_ar_is_always_asked():
    assert StudyRequest().choose("ar", "fsd") == ("ar", "fsd")
    assert StudyRequest(("sd", "picospec")).choose("ar", "fsd") == ("ar", "sd", "picospec")


def test_without_early_exits_only_guesses_are_prepared_for():
    (setting,) = study_named("threads").settings(StudyRequest())
    assert not any("hints" in method for method in setting.methods) and "fsd+rows:30" in setting.methods


class TestCrossings:
    def test_are_where_straight_lines_meet(self):
        lines = {"near": [(0, 1.0), (100, 3.0)], "far": [(0, 2.0), (100, 2.0)]}
        (one,) = crossings(lines)
        assert (one.x, one.y, one.before, one.after) == (50, 2.0, "near", "far")

    def test_need_a_clear_order_on_both_sides(self):
        touching = {"a": [(0, 1.0), (1, 1.999), (2, 1.0)], "b": [(0, 2.0), (1, 1.998), (2, 2.0)]}
        assert crossings(touching) == []
        slowly = {"a": [(0, 1.0), (1, 2.0), (2, 3.0)], "b": [(0, 2.0), (1, 2.001), (2, 2.0)]}
        assert [(one.before, one.after) for one in crossings(slowly)] == [("a", "b")]

    def test_count_only_points_that_both_have(self):
        assert crossings({"a": [(0, 1.0), (5, 9.0)], "b": [(1, 2.0), (6, 2.0)]}) == []
        assert crossings({}) == []


class TestThePapersFigures:
    def test_systems_are_those_of_tables_5_6_and_8(self):
        found = {one.path: one for one in systems()}
        assert len(found) == 7
        robot = found["fsd_000.robot"]
        assert (robot.threads, robot.miss, robot.over_ar) == (6, 55.63, 1.21)
        jetson = found["fsd_000.speedup_average.vicuna68m_llama2_7b.jetson"]
        assert (jetson.threads, jetson.miss) == (15, 39.94) and jetson.over_ar == pytest.approx(1.35 * 1.11)

    def test_a_point_is_about_its_system(self):
        assert system_of(load_point("go2-wifi6")[1]).path == "fsd_000.robot"
        assert system_of(load_point("jetson-llama2")[1]).threads == 15
        assert system_of(load_point("specedge-32b")[1]) is None and system_of(None) is None

    def test_stand_beside_ours(self):
        threads = read("threads")
        printed = [one for one in threads.charts[0].lines if one.paper]
        assert (3.0, 79.85) in printed[0].points and (6, 55.63) in printed[1].points
        queues = read("queues")
        assert queues.tables[0].rows[0][::2] == ("priority/priority", "79.8 %", "62.9 %", "27.6 %")
        gamma = read("gamma")
        assert {one.name: one.points for one in gamma.charts[0].lines}["paper, fsd"] == ((4.0, 1.21),)
        assert gamma.charts[0].marks[0].x == 5
        assert read("exits").charts[0].level == 55.63

    def test_are_of_the_operating_point_only(self):
        assert all(not one.paper for one in read("link").charts[0].lines)
        other = made_up_study("link", point="specedge-32b")
        lines = study_named("link").read(other).charts[0].lines
        assert {one.name for one in lines if one.paper} == {"paper, cloud-sd", "paper, specedge"}


def test_a_round_trip_study_names_crossovers_and_checks_eq_9():
    found = read("link")
    crossing = found.tables[0].rows[0]
    assert crossing[1:3] == ("fsd", "cloud-sd") and float(crossing[0].split()[0]) == pytest.approx(187, abs=2)
    marks = found.charts[0].marks
    assert marks[0].label == "fsd faster below 187 ms, cloud-sd above" and marks[0].y == pytest.approx(469, abs=2)
    eq_9 = next(table for table in found.tables if "Eq. 9" in table.title)
    assert eq_9.rows[0][0] == "0.46" and abs(float(eq_9.rows[0][4].split()[0])) < 0.5


def test_times_are_given_as_without_the_scale():
    whole = made_up_study("link")
    quarter = msgspec.structs.replace(whole, time_scale=0.25)
    first = [study_named("link").read(one).charts[0].lines[0].points[0][1] for one in (whole, quarter)]
    assert first[1] == pytest.approx(4 * first[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "done"),
    [*((name, None) for name in STUDIES), ("cost", 0), ("gamma", 0), ("batch", 1), ("link", 1), ("clients", 1)],
)
def test_a_study_is_drawn_from_its_file_alone_however_far_it_came(name, done, tmp_path):
    (tmp_path / name).mkdir()
    made_up_study(name, done).save(tmp_path / name)
    path = write_studies(tmp_path)
    page = path.read_text()
    assert path.name == REPORT_FILE and page.startswith("<!doctype html>")
    assert "http" not in page and "<script" not in page
    assert ("paced" in page.lower() and "emulated" in page.lower()) or name in ("batch", "cost", "payloads")
    assert study_named(name).question in page.replace("&#39;", "'")
    assert ("continue with --resume" in page) == (done is not None)
    assert ("<svg" in page) == (done != 0 or name == "cost")
    assert StudyResults.load(tmp_path / name).name == name


@pytest.mark.slow
def test_a_page_over_several_studies_and_a_folder_without_one(tmp_path):
    for name in ("gamma", "exits"):
        (tmp_path / name).mkdir()
        made_up_study(name).save(tmp_path / name)
    assert len(load_studies(tmp_path)) == 2
    page = write_studies(tmp_path).read_text()
    assert 'id="gamma"' in page and 'id="exits"' in page and 'href="gamma/gamma-1/report.html"' in page
    (tmp_path / "empty").mkdir()
    with pytest.raises(EvaluationError, match="holds no study"):
        write_studies(tmp_path / "empty")


@pytest.mark.slow
def test_a_scaled_study_says_so_and_a_different_answer_is_pointed_out(tmp_path):
    results = msgspec.structs.replace(made_up_study("gamma"), time_scale=0.25)
    wrong = msgspec.structs.replace(results.settings[0].rows[1], identical_to_ar=False)
    one = msgspec.structs.replace(results.settings[0], rows=[results.settings[0].rows[0], wrong])
    results = msgspec.structs.replace(results, settings=[one, *results.settings[1:]])
    (tmp_path / "gamma").mkdir()
    results.save(tmp_path / "gamma")
    page = write_studies(tmp_path).read_text()
    assert "<span>γ</span><span>varied</span>" in page and "0.25; milliseconds are scaled back" in page
    assert "NOT in sd (γ = 1)" in page


def test_a_newer_file_is_refused():
    with pytest.raises(ValueError, match="schema is 9"):
        StudyResults(schema=9, name="gamma", settings=[])


class TestCharts:
    def test_a_method_keeps_its_colour_and_others_take_turns(self):
        assert colours_of(["sd", "specedge", "picospec"])["sd"] == colours_of(["ar", "sd"])["sd"]
        found = colours_of(["specedge", "picospec"])
        assert len(set(found.values())) == 2

    def test_nothing_measured_draws_nothing(self):
        paper = ChartLine("paper", ((1, 2.0),), "paper", paper=True)
        assert line_chart(LineChart("t", "x", "y", (paper, ChartLine("sd", (), "sd")))) == ""
        assert row_chart(RowChart("t", "x", ("a",), (RowSeries("ours", (None,)),))) == ""

    @pytest.mark.slow
    def test_names_are_escaped_and_missing_rows_are_said(self):
        picture = row_chart(RowChart("t", "x", ("<a>", "b"), (RowSeries("ours", (1.0, None)),)))
        assert "&lt;a&gt;" in picture and "not measured" in picture

    def test_a_single_point_and_equal_values_are_drawn(self):
        picture = line_chart(LineChart("t", "x", "y", (ChartLine("sd", ((1, 1.0),), "sd"),), level=1.0))
        assert picture.startswith("<svg") and "nan" not in picture and "inf" not in picture


def test_an_estimate_adds_up_forwards_and_round_trips():
    config = BenchConfig(rtt_ms=240, draft_ms=72, verify_ms=620, gamma=4)
    assert answer_s("ar", config, 24) == pytest.approx(0.24 + 0.62 + 24 * 0.62 + 0.24, rel=0.02)
    assert answer_s("sd", config, 24) == pytest.approx(0.86 + 24 / 1.94 * (0.24 + 0.288 + 0.62), rel=0.02)
    assert answer_s("cloud-sd", config, 24) < answer_s("sd", config, 24)
    assert in_words(START_S) == "8 s" and in_words(330) == "6 min"


class TestAtThePapersAcceptance:
    def test_picospecs_parts_stand_beside_its_ablation(self):
        results = made_up_study("ablation", point="picospec-qwen32b")
        (table,) = study_named("ablation").read(results).tables
        by_words = {row[0]: row for row in table.rows}
        assert by_words["everything"][3] == "1.45×"  # 20.19 tokens a second over its AR's 13.89
        assert by_words["no parallel drafting: stop and wait"][4] == "0.59×"  # 11.92 over 20.19
        robot = study_named("ablation").read(made_up_study("ablation", point="go2-wifi6"))
        assert all(row[3] == "–" for row in robot.tables[0].rows)

    def test_dssds_communication_stands_beside_its_table(self):
        (table,) = read("comm").tables
        row = next(row for row in table.rows if row[:2] == ("4", "0.7"))
        assert row[3] == "76.0 %" and row[7] == "26.08"  # 1 − 0.7⁴, and Tcomm, as printed
        assert {row[0] for row in table.rows} == {"2", "4", "8"}

    @pytest.mark.slow
    def test_a_study_with_emulated_acceptance_says_so(self, tmp_path):
        results = made_up_study("gamma")
        config = {**results.config, "acceptance": "tau:2.92@4+1 (acceptance emulated)"}
        (tmp_path / "gamma").mkdir()
        msgspec.structs.replace(results, config=config).save(tmp_path / "gamma")
        assert write_studies(tmp_path).read_text().count("acceptance emulated") >= 2

    @pytest.mark.slow
    def test_tokens_a_dollar_stand_beside_specedges(self):
        findings = study_named("clients").read(made_up_study("clients"))
        table = next(one for one in findings.tables if one.title == "What it costs")
        assert table.rows[-1][0].startswith("paper: ") and len(table.rows) > 1
        assert table.rows[-1][3] == "2.26×" and table.rows[-1][6] == "1.98×"  # of the six tasks' means

    def test_draft_lengths_stand_beside_picospecs_accepted_lengths(self):
        findings = study_named("gamma").read(made_up_study("gamma", point="picospec-qwen32b"))
        table = findings.tables[0]
        place = table.head.index("paper's")
        assert {row[0]: row[place] for row in table.rows}["4"] == "2.50"
        assert "paper's" not in read("gamma").tables[0].head
