"""Operating points at their papers' acceptance: ours, theirs, their formulas; and the tables a checkout keeps."""

from __future__ import annotations

import dataclasses
import shutil

import msgspec
import pytest
import yaml

from specdec.methods import METHODS
from specnav.bench.data.acceptance import read_acceptance
from specnav.bench.data.names import same_at, unlike_methods
from specnav.bench.data.papers import figure
from specnav.bench.data.points import POINTS, load_point, paper_acceptance
from specnav.bench.records.bench import AcceptanceRecord, BenchJournal, BenchResults
from specnav.bench.report.points import (
    BEGIN,
    BLOCK,
    END,
    block,
    figures_table,
    formula_at,
    load_points,
    paper_of,
    printed_of,
    with_block,
    with_table,
    write_points,
    write_tables,
)
from specnav.bench.runner.points import run_points
from specnav.bench.runner.run import methods_of, run_bench, settings_of
from specnav.bench.settings import make_config
from specnav.errors import UsageError
from specnav.paths import ROOT
from specnav.results.errors import EvaluationError
from tests.bench.made_up import made_up_results

NAMES = sorted(path.stem for path in POINTS.glob("*.yaml"))
EMULATED = AcceptanceRecord(
    asked="tau:2.5@4+1", words="τ 2.5 of at most 5 (sd, γ = 4)", gamma=4, strength=1.1, seed=0, achieved=2.52,
    tolerance=0.05, ceiling=4.4, positions=90, questions=2,
)  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """A made-up run at its paper's acceptance, as it lies in a folder of points."""
    results, answers = made_up_results()
    config = {**results.config, "acceptance": "tau:2.5@4+1 (acceptance emulated)", "draft_ms": 3.0, "gamma": 4}
    results = msgspec.structs.replace(results, config=config, acceptance=EMULATED)
    (tmp_path / "all" / "made-up").mkdir(parents=True)
    journal = BenchJournal(tmp_path / "all" / "made-up", lambda found: results)
    journal.add(answers)
    journal.settle()
    (found,) = load_points(tmp_path / "all", pytest.fail)
    return found


def results_at(name: str):
    """Nothing measured, at a point's own settings."""
    config = make_config({"point": name, "at_paper_acceptance": True})
    results, _ = made_up_results()
    methods = unlike_methods(config.temperature)
    return msgspec.structs.replace(results, config=settings_of(config, methods), point=load_point(name)[1])


@pytest.mark.parametrize("name", NAMES)
def test_every_point_has_its_papers_acceptance_and_says_emulated(name):
    config = make_config({"point": name, "at_paper_acceptance": True})
    wanted = read_acceptance(config.acceptance, config.gamma)
    assert wanted.value > 0 and config.draft_model == config.target_model
    assert "acceptance emulated" in str(settings_of(config, ("ar",))["acceptance"])
    assert make_config({"point": name}).acceptance == ""  # only where it is asked for
    assert printed_of(results_at(name)) is not None


class TestTheFormulasAtThePapersOwnNumbers:
    @pytest.mark.parametrize(
        ("name", "tau", "expected"),
        [
            ("go2-wifi6", 2.92, 2.92 * 425 / (240 + 288 + 620)),
            ("jetson-vicuna7b", 2.15, 2.15 * 341 / (190 + 334 + 497)),
            ("rtx-llama2", 3.54, 3.54 * 320 / (94 + 99 + 467)),
        ],
    )
    def test_sd_is_the_synchronous_formula(self, name, tau, expected):
        printed = printed_of(results_at(name))
        assert printed.tau == pytest.approx(tau) and printed.over_ar("sd") == pytest.approx(expected, rel=1e-3)

    def test_fsd_takes_the_printed_miss_rate_and_the_robots_figure_comes_out(self):
        printed = printed_of(results_at("go2-wifi6"))
        assert printed.over_ar("fsd") == pytest.approx(2.92 * 425 / (240 + 0.5563 * 288 + 620), rel=1e-3)
        assert printed.over_ar("fsd") == pytest.approx(figure("fsd_000.robot.ar_fsd"), rel=0.02)
        assert printed_of(results_at("specedge-32b")).over_ar("fsd") is None  # prints none

    def test_picospecs_own_formula_gives_what_it_prints(self):
        qwen = printed_of(results_at("picospec-qwen32b"))
        assert qwen.over_ar("picospec") == pytest.approx(1.45, rel=0.02) and qwen.alpha == pytest.approx(0.82, abs=0.01)
        llama = printed_of(results_at("picospec-llama70b"))
        assert llama.over_ar("picospec") == pytest.approx(2.51, rel=0.05)
        assert llama.over_ar("split") == pytest.approx(145.6 / (145.6 + 48))

    def test_dssd_pays_a_row_for_a_rejection_and_dsd_rows_up(self):
        printed = printed_of(results_at("dssd-opt6.7b"))
        tau = (1 - 0.61**9) / 0.39
        forwards = 8 * 2.3 + 160
        assert printed.a_token("dssd") == pytest.approx((forwards + 20 + (1 - 0.61**8) * 8.0) / tau, rel=1e-3)
        assert printed.a_token("dsd") == pytest.approx((forwards + 20 + 61269 * 8 / 100e3) / tau, rel=1e-3)
        assert printed.a_token("sd") == pytest.approx((forwards + 20) / tau, rel=1e-3)

    def test_nothing_is_said_where_no_formula_is_about_it(self):
        printed = printed_of(results_at("specedge-32b"))
        assert printed.over_ar("auto") is None and printed.over_ar("specedge") is None
        assert printed_of(made_up_results()[0]) is None  # not at its paper's acceptance


def test_greedy_who_resamples_makes_no_method():
    triggers = ("hsl", "edgellm", "pipesd")
    alike = ("ar", "cloud-sd", "split", "sd", "picospec", "fsd", "auto", "ngram", "specedge")
    assert unlike_methods(0.0) == (*alike, *triggers)
    assert unlike_methods(0.7) == tuple(METHODS)
    assert same_at("dssd", 0.0) == "sd" and same_at("dssd", 1.0) == "dssd"
    assert same_at("picospec-lossy", 0.0) == "picospec"
    assert same_at("hf-generate", 0.0) == "hf-generate" and same_at("sd+tree:8x4", 0.0) == "sd+tree:8x4"


class TestTheTables:
    def test_have_three_figures_a_method(self, run):
        assert paper_of(run, "sd", "speedup") == 1.5
        # 40 ms of link, four drafts of 3 ms and 30 ms of verification for 2.5 tokens, against 30 ms a token
        assert formula_at(run, "sd", "speedup") == pytest.approx(30 / ((40 + 12 + 30) / 2.5), rel=1e-3)
        assert f"({1.5:.2f}; {30 / (82 / 2.5):.2f})" in figures_table([run])
        ours = next(row.speedup_vs_ar for row in run.results.rows if row.method == "sd")
        kept = yaml.safe_load(block(run))["measured"]
        assert kept["over_ar"]["sd"] == [round(ours, 2), 1.5, 0.91]
        assert "emulated" in kept["acceptance"]

    def test_say_acceptance_emulated_on_the_page_and_in_the_note(self, run, tmp_path):
        page = write_points(tmp_path / "all", pytest.fail).read_text()
        note = (tmp_path / "all" / "points.md").read_text()
        assert "acceptance emulated" in page and "Acceptance emulated" in note and "http" not in page
        assert "| sd | 2.75 |" in note and "Its formula with" in page

    def test_block_replaces_the_block_of_before_and_nothing_else(self, run):
        text = "title: one\nexplained: >-\n  As it is.\n"
        once = with_block(text, block(run))
        assert once.startswith(text + BLOCK) and with_block(once, block(run)) == once
        assert yaml.safe_load(once)["title"] == "one" and "measured" in yaml.safe_load(once)

    def test_go_into_the_files_or_nothing_is_written(self, run, tmp_path):
        points, page = tmp_path / "points", tmp_path / "figures.md"
        points.mkdir()
        (points / "made-up.yaml").write_text("title: one\n")
        page.write_text("# Figures\n\nNo place.\n")
        with pytest.raises(EvaluationError, match="has no place for the table"):
            write_tables([run], points, page)
        assert (points / "made-up.yaml").read_text() == "title: one\n"
        page.write_text(f"# Figures\n\n{BEGIN}\nold\n{END}\n\nMore.\n")
        assert write_tables([run], points, page) == [points / "made-up.yaml", page]
        assert "old" not in page.read_text() and page.read_text().endswith(f"{END}\n\nMore.\n")
        assert "| made-up | 2.5@4+1 |" in page.read_text()
        with pytest.raises(EvaluationError, match=r"--write is for a checkout"):
            write_tables([run], tmp_path / "nowhere", page)

    def test_have_their_place_in_this_checkout(self):
        figures = ROOT / "docs" / "figures.md"
        assert with_table(figures.read_text(), "| a |", str(figures)).count("| a |") == 1


class TestDamagedRuns:
    """Of a folder in which another program, or a person, has written."""

    def page_with(self, tmp_path, results: bytes) -> tuple[str, list[str]]:
        folder = tmp_path / "all"
        shutil.copytree(folder / "made-up", folder / "foreign")
        (folder / "foreign" / "results.json").write_bytes(results)
        warned = []
        return write_points(folder, warned.append).read_text(), warned

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("acceptance", "much"),
            ("draft_ms", "soon"),
            ("verify_ms", -3),
            ("cloud_draft_ms", "1:2:3"),
            ("rtt_ms", "near"),
            ("bandwidth_mbps", "wide"),
            ("gamma", -1),
            ("gamma", "four"),
        ],
    )
    def test_whose_settings_say_no_numbers_are_shown_without_the_papers(self, run, tmp_path, name, value):
        config = {**run.results.config, name: value}
        foreign = msgspec.structs.replace(run.results, config=config)
        page, warned = self.page_with(tmp_path, msgspec.json.encode(foreign))
        (line,) = warned
        assert line.startswith("foreign is shown without the paper's own numbers: ") and str(value) in line
        assert "\n" not in line and "foreign is shown without" in page and 'href="foreign/report.html"' in page
        assert "| sd | 2.75 |" in (tmp_path / "all" / "points.md").read_text()  # the other run has all its figures

    @pytest.mark.parametrize("results", [b"", b"{}", b"\xff", b'{"schema": 2}', b'{"a":' * 100_000])
    def test_that_cannot_be_read_are_left_out(self, run, tmp_path, results):
        page, (line,) = self.page_with(tmp_path, results)
        assert line.startswith("foreign is left out: ") and "\n" not in line
        assert "foreign is left out" in page and 'href="made-up/report.html"' in page
        assert 'href="foreign/report.html"' not in page

    @pytest.mark.parametrize("scale", [0, -1.0, "fast"])
    def test_whose_times_cannot_be_scaled_back_are_left_out(self, run, tmp_path, scale):
        foreign = msgspec.structs.replace(run.results, config={**run.results.config, "time_scale": scale})
        page, (line,) = self.page_with(tmp_path, msgspec.json.encode(foreign))
        assert line.startswith("foreign is left out: setting time_scale") and 'href="foreign/report.html"' not in page

    def test_of_which_none_can_be_read_make_no_page(self, run, tmp_path):
        (tmp_path / "all" / "made-up" / "results.json").write_text("[]")
        with pytest.raises(EvaluationError, match="no run of an operating point that can be read"):
            load_points(tmp_path / "all", lambda line: None)


class TestTimeScale:
    def test_multiplies_every_time_and_figures_are_given_without_it(self, run):
        flags = {"point": "specedge-32b", "at_paper_acceptance": True, "outages": ("1:0.5", "3:1")}
        plain, slow = make_config(flags), make_config({**flags, "time_scale": 4.0})
        assert slow.profile().outages == ((4.0, 2.0), (12.0, 4.0))
        assert slow.rtt_ms == 4 * plain.rtt_ms and slow.draft_ms == 4 * plain.draft_ms
        assert slow.verify_ms == 4 * plain.verify_ms
        assert slow.point == plain.point and settings_of(slow, ())["time_scale"] == 4.0
        ours = next(row for row in run.results.rows if row.method == "sd")
        config = {**run.results.config, "time_scale": 4.0}
        results = msgspec.structs.replace(run.results, config=config)
        scaled = dataclasses.replace(run, results=results, time_scale=4.0)
        at_point = {name: scaled.three("sd", name)[0] for name in ("tpot_ms", "speedup", "tokens_per_s")}
        assert (at_point["tpot_ms"], at_point["speedup"]) == (ours.tpot_ms / 4, ours.speedup_vs_ar)
        assert at_point["tokens_per_s"] == ours.tokens_per_s * 4
        assert formula_at(scaled, "sd", "tpot_ms") == formula_at(run, "sd", "tpot_ms") / 4
        assert "every time times 4" in block(scaled)


class TestBadInput:
    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            ({"at_paper_acceptance": True}, "name one with --point"),
            ({"point": "go2-wifi6", "at_paper_acceptance": True, "acceptance": "alpha:0.5"}, "give one"),
            ({"acceptance": "alpha:0.5", "draft_model": "elsewhere"}, "leave out the draft"),
            ({"acceptance": "alpha:0.5", "gguf": "threads=2"}, "or --acceptance"),
            ({"acceptance": "tau:9@5"}, "1 to 5 tokens"),
            ({"acceptance": "tau:3@5", "gamma": 5}, "ambiguous"),
            ({"acceptance": "hardly"}, "give tau:T@N"),
        ],
    )
    def test_is_one_line(self, flags, words):
        with pytest.raises((UsageError, EvaluationError), match=words) as error:
            make_config(flags)
        assert "\n" not in str(error.value)

    def test_the_library_cannot_be_disturbed(self):
        with pytest.raises(EvaluationError, match="hf-assisted drafts with transformers"):
            methods_of(make_config({"acceptance": "alpha:0.5", "methods": ("ar", "hf-assisted")}))

    def test_tables_are_kept_of_all_points_only(self):
        for flags in ({"point": "go2-wifi6", "at_paper_acceptance": True}, {"point": "all"}):
            with pytest.raises(UsageError, match="give all --at-paper-acceptance"):
                run_points(flags, write=True)

    def test_a_point_that_names_no_acceptance(self, tmp_path):
        for extra in ("", "acceptance: {tau: 2, alpha: 0.5}\n", "acceptance: {gamma: 4}\n", "acceptance: {beta: 1}\n"):
            place = tmp_path / "mine.yaml"
            place.write_text(f"title: mine\nmodels: two\nsource: me\n{extra}")
            with pytest.raises(UsageError, match="has no acceptance from its paper"):
                paper_acceptance(load_point(str(place))[0])


@pytest.mark.graph
@pytest.mark.usefixtures("quickly_started")
@pytest.mark.timeout(600)
def test_a_run_reaches_what_was_asked_and_every_report_says_emulated(tmp_path, capsys):
    """Edge and cloud draft alike, in processes of their own; nothing of it comes into an answer."""
    flags = {"methods": ("ar", "sd", "cloud-sd", "fsd", "specedge"), "limit": 2, "max_new_tokens": 24}
    paced = {"verify_ms": 30.0, "draft_ms": 6.0}
    config = make_config({**flags, **paced, "acceptance": "tau:2.5@5", "out": tmp_path / "run"})
    assert run_bench(config) == 0
    results = BenchResults.load(tmp_path / "run")
    rows = {row.method: row for row in results.rows}
    assert results.acceptance is not None and all(row.identical_to_ar for row in results.rows)
    assert rows["sd"].tau == pytest.approx(results.acceptance.achieved, abs=0.12)
    assert rows["cloud-sd"].tau == pytest.approx(rows["sd"].tau, abs=0.3)
    assert any("paced times" in note for note in results.notes)
    assert "acceptance emulated" in str(results.config["acceptance"])
    assert "acceptance emulated" in (tmp_path / "run" / "report.html").read_text()
    shown = capsys.readouterr()
    assert "acceptance emulated" in shown.out or "acceptance emulated" in shown.err
