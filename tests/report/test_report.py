from __future__ import annotations

import io
import re
from pathlib import Path

import msgspec
import pytest
from PIL import Image

from specnav.report import write_report
from specnav.report.charts import HEX, apart, document, histogram, timeline
from specnav.report.floor import overlap, place_label
from specnav.report.media import make_gif
from specnav.report.page import latency_plot, tokens_per_decision, typical
from specnav.results.demo import DemoResults, summarise
from specnav.results.errors import EvaluationError
from specnav.results.trace import Span, load_traces, save_trace
from tests.report.reading import ReadPage
from tests.report.synthetic_run import make_run


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    run = tmp_path_factory.mktemp("run")
    make_run(run, episodes=3)
    return run, write_report(run).read_text(encoding="utf-8")


@pytest.mark.slow
def test_report_loads_nothing_from_outside(page: tuple[Path, str]) -> None:
    _, text = page
    loaded = ReadPage(text).loaded
    assert len(loaded) > 20
    assert all(value.startswith("data:image/") for value in loaded)
    assert "url(" not in re.sub(r"url\(#\w+\)", "", text) and "@import" not in text and "<script" not in text


@pytest.mark.slow
def test_report_shows_every_part(page: tuple[Path, str]) -> None:
    _, text = page
    for part in (
        "Simulated", "Emulated link", "RTT 40 ms, jitter 2 ms", "Pacing", "Episodes", "find the silver bottle",
        "Decision time", "Camera to action", "Drafted and accepted tokens", "What it costs", "41.50 ms",
        "One decision, edge to cloud and back",
        "Latency study", "What the robot saw and did", "Settings", "Machine", "made-up processor",
    ):  # fmt: skip
        assert part in text, part
    assert text.count("<details") == 3
    assert text.count('class="shot') == 27
    assert text.count("Map of episode") == 3


@pytest.mark.slow
def test_moves_of_the_exploration_policy_are_marked_as_not_the_models(page: tuple[Path, str]) -> None:
    _, text = page
    assert text.count('<span class="tag policy">exploration policy</span>') == 3
    assert text.count("<s>The next action is turn left 30 degree.</s>") == 3


@pytest.mark.slow
def test_answers_that_were_not_understood_are_shown_as_such(page: tuple[Path, str]) -> None:
    _, text = page
    assert text.count('<span class="tag bad">not understood</span>') == 1
    assert "“The next action is move forward 75.”" in text


@pytest.mark.slow
def test_gif_moves_and_keeps_to_its_budget(page: tuple[Path, str]) -> None:
    run, _ = page
    data = (run / "demo.gif").read_bytes()
    assert 10_000 < len(data) <= 3_000_000
    with Image.open(io.BytesIO(data)) as picture:
        assert getattr(picture, "n_frames", 1) > 20
        assert picture.size[0] == 448


@pytest.mark.slow
def test_gif_drops_frames_to_fit_a_small_budget(page: tuple[Path, str]) -> None:
    run, _ = page
    small = make_gif(run, load_traces(run)[:1], 60_000)
    assert 0 < len(small) <= 60_000


@pytest.mark.slow
def test_text_from_outside_is_escaped(tmp_path: Path) -> None:
    make_run(tmp_path, episodes=1, study=False)
    evil = "<script>alert(1)</script>"
    (trace,) = load_traces(tmp_path)
    shots = [msgspec.structs.replace(d, reasoning=evil, action=evil, note=evil) for d in trace.decisions]
    things = [msgspec.structs.replace(thing, name=evil) for thing in trace.objects]
    result = msgspec.structs.replace(trace.result, instruction=evil)
    save_trace(tmp_path, msgspec.structs.replace(trace, decisions=shots, objects=things, result=result))
    results = DemoResults.load(tmp_path)
    msgspec.structs.replace(results, episodes=[result], error=evil).save(tmp_path)
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert evil not in text
    assert "&lt;script&gt;" in text


def test_report_of_a_run_that_failed_says_so_and_shows_what_there_is(tmp_path: Path) -> None:
    results = make_run(tmp_path, episodes=1, study=False)
    nothing = summarise([])
    failed = msgspec.structs.replace(
        results, episodes=[], summary=nothing, error="navsim ended (exit code 1)"
    )
    (tmp_path / "episodes" / "000" / "trace.json").unlink()
    failed.save(tmp_path)
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "The run failed: navsim ended (exit code 1)" in text
    assert "No episode was finished." in text
    assert "Latency study" not in text


@pytest.mark.slow
def test_missing_frames_leave_a_blank_and_not_an_error(tmp_path: Path) -> None:
    make_run(tmp_path, episodes=1, study=False)
    (trace,) = load_traces(tmp_path)
    for path in (tmp_path / "episodes" / "000" / "frames").iterdir():
        path.unlink()
    for video in (trace.video, []):
        save_trace(tmp_path, msgspec.structs.replace(trace, video=video))
        text = write_report(tmp_path).read_text(encoding="utf-8")
        assert text.count('<div class="blank">') == 9
        assert not (tmp_path / "demo.gif").exists()


def test_broken_trace_is_refused_by_name(tmp_path: Path) -> None:
    make_run(tmp_path, episodes=1)
    (tmp_path / "episodes" / "000" / "trace.json").write_text("{}")
    with pytest.raises(EvaluationError, match=r"trace\.json is not a valid EpisodeTrace"):
        write_report(tmp_path)


@pytest.mark.slow
def test_histogram_counts_every_value() -> None:
    values = [10.0, 12.0, 12.5, 40.0, 90.0]
    text = histogram(values, "times", "edge")
    counted = sum(int(n) for n in re.findall(r"ms: (\d+)</title>", text))
    assert counted == len(values)
    assert "p50 12 ms" in text
    assert histogram([], "times", "edge") == ""
    assert "p50 7 ms" in histogram([7.0, 7.0], "times", "edge")


def test_empty_charts_are_empty() -> None:
    assert tokens_per_decision([]) == ""
    assert timeline([]) == ""
    assert latency_plot([]) == ""


def test_the_caption_of_a_decision_without_drafts_is_a_sentence(tmp_path: Path) -> None:
    make_run(tmp_path, episodes=1)
    (first, *_) = load_traces(tmp_path)
    plain = msgspec.structs.replace(first, decisions=[msgspec.structs.replace(d, drafted=[]) for d in first.decisions])
    for trace, end in ((first, r"median: \d+ tokens in \d+ rounds\. The"), (plain, r"median\. The")):
        chart = typical([trace])
        assert chart is not None and re.search(end, chart.caption)


def test_timeline_draws_each_span_in_its_lane() -> None:
    text = timeline(
        [
            Span("edge", "draft 1", 0.0, 8.0),
            Span("uplink", "draft", 8.0, 8.1),
            Span("cloud", "verify 1", 8.1, 20.0),
        ]
    )
    assert "edge: draft 1, 0.0–8.0 ms (8.00 ms)" in text
    assert "uplink: draft, 8.0–8.1 ms (0.10 ms)" in text
    assert text.count("<title>") == 3


@pytest.mark.slow
def test_a_chart_has_the_pages_colours_and_nothing_to_load() -> None:
    text = timeline([Span("edge", "draft <1>", 0.0, 8.0)])
    assert "var(--edge)" in text and not any(colour in text for colour in HEX.values())
    assert "&lt;1&gt;" in text and "<style" not in text and "url(" not in text and "DejaVu" not in text
    alone = document(lambda figure: figure.add_subplot().plot([1, 2], [3, 4]), 200.0, 100.0)
    assert alone.startswith("<?xml") and alone == document(lambda f: f.add_subplot().plot([1, 2], [3, 4]), 200.0, 100.0)


def test_labels_are_a_step_apart_and_inside() -> None:
    assert apart([1.0, 1.1, 9.9], 0.0, 10.0, 1.0) == [1.0, 2.0, 9.9]
    assert apart([9.0, 9.5, 9.9], 0.0, 10.0, 1.0) == [8.0, 9.0, 10.0]


def test_labels_avoid_what_is_already_there() -> None:
    taken = [(0.0, 0.0, 300.0, 94.0)]
    x, y = place_label("silver bottle", (145.0, 95.0, 155.0, 105.0), taken, (300.0, 300.0))
    assert y > 105
    assert overlap(taken[0], taken[1]) == 0.0
    assert 0 < x < 300
