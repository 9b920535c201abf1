"""The papers' operating points: every file loads, and its numbers are the papers'."""

from __future__ import annotations

import pytest

from specdec.errors import OptionsError
from specnav.bench.data.papers import figure, figures
from specnav.bench.data.points import POINTS, load_point
from specnav.bench.settings import BenchConfig, make_config
from specnav.errors import UsageError
from specnav.results.errors import EvaluationError

NAMES = sorted(path.stem for path in POINTS.glob("*.yaml"))
FSD = {
    "jetson-vicuna7b": ("vicuna68m_vicuna7b", "jetson"),
    "jetson-vicuna13b": ("vicuna160m_vicuna13b", "jetson"),
    "jetson-llama2": ("vicuna68m_llama2_7b", "jetson"),
    "rtx-vicuna7b": ("vicuna68m_vicuna7b", "rtx"),
    "rtx-vicuna13b": ("vicuna160m_vicuna13b", "rtx"),
    "rtx-llama2": ("vicuna68m_llama2_7b", "rtx"),
}


@pytest.fixture
def folders(tmp_path):
    """Two folders that pass for models."""
    for name in ("target", "draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    return {"target_model": str(tmp_path / "target"), "draft_model": str(tmp_path / "draft")}


@pytest.mark.parametrize("name", NAMES)
def test_every_point_loads_and_its_figures_are_printed_ones(name):
    point, record = load_point(name)
    assert record.figures and record.assumed and point.verify_ms > point.draft_ms > 0
    assert all(entry.value == figure(entry.where) for entry in record.figures)


@pytest.mark.parametrize(("name", "place"), FSD.items())
def test_early_exit_points_hold_the_papers_times(name, place):
    point, printed = load_point(name)[0], figures()["fsd_000"]["system"][place[0]][place[1]]
    assert point.rtt_ms == 2 * printed["Tc"] and point.verify_ms.for_rows(5) == printed["Tq"]
    assert point.draft_ms * 4 == printed["gTp"] and point.gamma == 4


@pytest.mark.parametrize("name", [*FSD, "go2-wifi6"])
def test_early_exit_points_price_rows_as_the_papers_table_does(name):
    """Tq is a verification of a draft of 4 and the token behind it."""
    point, printed = load_point(name)[0], {int(n): row for n, row in figures()["fsd_000"]["batch_latency"].items()}
    of_five = printed[4][0] + (printed[8][0] - printed[4][0]) / 4
    for rows, (server, client) in printed.items():
        if server is None or rows > 32:
            continue
        assert point.verify_ms.for_rows(rows) / point.verify_ms.for_rows(5) == pytest.approx(server / of_five, rel=0.01)
        if name.startswith("jetson") and rows not in (2, 3):  # less than one row took there
            assert point.draft_ms.for_rows(rows) / point.draft_ms == pytest.approx(client / printed[1][1], rel=0.01)


def test_robot_and_specedge_points_hold_the_papers_times():
    robot, printed = load_point("go2-wifi6")[0], figures()["fsd_000"]["robot"]
    assert (robot.rtt_ms, robot.verify_ms.for_rows(5), robot.draft_ms) == (
        2 * printed["Tc"],
        printed["Tq"],
        printed["gTp"] / 4,
    )
    edge = load_point("specedge-32b")[0]
    fills_the_forward = round((edge.verify_ms - edge.rtt_ms) / edge.draft_ms)  # SpecEdge, section 4
    assert edge.gamma == fills_the_forward == 7


def test_picospec_points_decode_at_the_printed_speed():
    for name, key in (("picospec-qwen32b", "qwen_gsm8k"), ("picospec-llama70b", "llama_gsm8k")):
        speed = figures()["picospec_002"]["speedup"][key]["ar"]
        assert 1e3 / load_point(name)[0].verify_ms == pytest.approx(speed, rel=0.01)


def test_flags_win_over_the_point(folders):
    config = make_config({"point": "go2-wifi6", "rtt_ms": 10.0, "gamma": None, **folders})
    assert (config.rtt_ms, config.verify_ms.for_rows(5), config.gamma, config.point) == (10.0, 620, 4, "go2-wifi6")
    assert config.link_is_emulated and not make_config(folders).link_is_emulated


def test_wrong_points_are_refused(tmp_path):
    with pytest.raises(UsageError, match="there are dssd"):
        load_point("nowhere")
    path = tmp_path / "mine.yaml"
    for text, words in (
        ("title: a\n", "lacks models, source"),
        ("title: a\nmodels: b\nsource: c\nspeed: 3\n", "unknown setting speed"),
        ("title: a\nmodels: b\nsource: c\nfigures: [{method: sd}]\n", "needs method, quantity"),
        ("title: a\nmodels: b\nsource: c\nfigures: [{method: sd, quantity: x, value: y}]\n", "quantity 'x'"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=words):
            load_point(str(path))
    whole = "title: a\nmodels: b\nsource: c\n"
    for text, words in (
        (whole + "1: 2\n", "1 must be a string"),
        ("title: 2024-13-45\n", "not valid YAML"),
        (whole + "assumed: 5\n", "assumed is 5; give a list"),
        (whole + "figures: 3\n", "figures is 3"),
        (whole + "acceptance: [1]\n", "acceptance is .1.; give a mapping"),
        (whole + "measured: x\n", "measured is 'x'"),
        ("[" * 3000, "not valid YAML"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=words) as caught:
            load_point(str(path))
        assert "\n" not in str(caught.value)
    with pytest.raises(EvaluationError, match="no figure"):
        figure("fsd_000.robot.nothing")
    with pytest.raises(EvaluationError, match="is not a single figure"):
        figure("fsd_000.robot")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", 0),
        ("gamma", 0),
        ("temperature", -1),
        ("rtt_ms", -1.0),
        ("loss", 1.0),
        ("verify_ms", 1e9),
        ("seed", -1),
    ],
)
def test_absurd_numbers_are_refused_with_the_range(folders, name, value):
    with pytest.raises(UsageError, match=f"{name} must be a (whole )?number from .*, got"):
        BenchConfig(**{name: value}, **folders)


def test_options_of_generation_are_checked_before_anything_is_loaded(folders):
    with pytest.raises(OptionsError, match="temperature must be 0"):
        BenchConfig(temperature=1e-9, **folders)


def test_a_missing_model_and_a_resume_without_a_folder_are_refused(folders, tmp_path):
    with pytest.raises(UsageError, match=r"target model .* is missing"):
        BenchConfig(target_model=str(tmp_path / "none"))
    with pytest.raises(UsageError, match="--out"):
        BenchConfig(resume=True, **folders)
