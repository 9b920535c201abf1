from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from cloud_verifier.config import ServerConfig
from specdec.link.shaping import LinkProfile
from specnav.demo.config import DemoConfig
from specnav.demo.decider import vlm_spec
from specnav.demo.errors import DemoError
from specnav.demo.journal import settings_of
from specnav.demo.live import LiveView
from specnav.demo.run import check_inputs, run_demo, server_settings, weights_of
from specnav.demo.views import DemoScene, PlainView
from specnav.errors import UsageError
from specnav.paths import DEFAULT_TEXT_TARGET
from specnav.results.trace import Decision
from specnav.run_folder import new_run_folder
from specnav.supervise.children import emulator_spec, endpoint_of, ros_arguments, verifier_spec


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("episodes", 0, "from 1 to 10000"),
        ("episodes", True, "episodes must be a whole number from 1 to 10000, got True"),
        ("loss", 1.5, "from 0 to 0.9"),
        ("rtt_ms", float("nan"), "from 0 to 60000"),
        ("method", "magic", "allowed is one of ar,"),
        ("method", "split", "layers of the target"),
        ("exploration", "random", "must be one of auto, frontier_search, none"),
        ("gamma", 0, "from 1 to 32"),
        ("gguf", "threads", "give NAME=VALUE"),
        ("gguf", "threads=2", "leave gguf out, or name a file"),
    ],
)
def test_wrong_settings_are_refused_with_the_allowed_range(name: str, value: object, words: str) -> None:
    with pytest.raises(DemoError) as caught:
        DemoConfig(**{name: value})
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_absent_targets_are_spread_over_the_run() -> None:
    config = DemoConfig(episodes=10, absent_share=0.3)
    absent = [config.is_absent(index) for index in range(10)]
    assert sum(absent) == 3 and not absent[0]
    assert not any(DemoConfig().is_absent(index) for index in range(20))


def test_any_link_setting_puts_the_emulator_in_between() -> None:
    assert not DemoConfig().emulates(0.0)
    assert DemoConfig().emulates(40.0)
    assert DemoConfig(loss=0.01).emulates(0.0)


def test_settings_in_the_results_have_no_machine_paths() -> None:
    shown = settings_of(DemoConfig())
    assert shown["target_model"] == "default_models/nav-target"
    assert shown["robot_config"] == "config/robot.yaml"
    assert "out" not in shown


def test_missing_models_and_files_are_refused_before_anything_starts(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.yaml" for name in ("robot_config", "sim_config", "cloud_config")}
    for path in files.values():
        path.write_text("a: 1")
    with pytest.raises(DemoError, match="target model /no/such/folder is missing"):
        check_inputs(DemoConfig(target_model="/no/such/folder", **files))
    with pytest.raises(DemoError, match=r"text-target takes no pictures: give a vision-language model"):
        check_inputs(DemoConfig(target_model=str(DEFAULT_TEXT_TARGET), **files))
    with pytest.raises(DemoError, match=r"nothing\.yaml is missing"):
        check_inputs(DemoConfig(**(files | {"sim_config": tmp_path / "nothing.yaml"})))


def test_verifier_gets_the_clouds_settings_with_the_runs_model_on_loopback(tmp_path: Path) -> None:
    path = tmp_path / "cloud.yaml"
    path.write_text("bind: tcp://0.0.0.0:5555\nmodel: other\nquantize: 8bit\n")
    server = server_settings(DemoConfig(cloud_config=path, target_model="/models/mine"))
    assert (server.bind, server.model, server.quantize) == ("tcp://127.0.0.1:0", "/models/mine", "8bit")
    assert server_settings(DemoConfig(cloud_config=path, verify_ms=40.0)).verify_ms == 40.0
    path.write_text("verify_ms: 25\n")
    assert server_settings(DemoConfig(cloud_config=path)).verify_ms == 25
    path.write_text("binding: x\n")
    with pytest.raises(UsageError, match="unknown setting binding"):
        server_settings(DemoConfig(cloud_config=path))


def test_run_never_writes_into_a_folder_that_holds_something(tmp_path: Path) -> None:
    fresh = new_run_folder(tmp_path / "new", "demo")
    assert fresh.is_dir()
    (fresh / "file").write_text("x")
    with pytest.raises(UsageError, match="is not empty"):
        new_run_folder(fresh, "demo")
    with pytest.raises(UsageError, match="cannot use"):
        new_run_folder(fresh / "file" / "below", "demo")


def test_two_processes_never_write_into_one_folder(tmp_path: Path) -> None:
    """Both find it empty; the lock of the one that was killed is gone with it."""
    code = (
        "import sys; from pathlib import Path; from specnav.run_folder import claim; "
        "claim(Path(sys.argv[1])); print(1, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout is not None and first.stdout.readline() == b"1\n"
        with pytest.raises(UsageError, match="another process writes into"):
            new_run_folder(tmp_path, "demo")
        first.kill()
    assert new_run_folder(tmp_path, "demo") == tmp_path.resolve()


def test_ready_line_tells_the_endpoint_whatever_stands_before_it() -> None:
    assert endpoint_of('[x] {"event": "ready", "bind": "tcp://127.0.0.1:4321"}') == "tcp://127.0.0.1:4321"


def test_commands_carry_the_runs_settings() -> None:
    config = DemoConfig(gamma=6, rtt_ms=40.0, loss=0.1, seed=3)
    server = ServerConfig(model="m", quantize="4bit", exits="e", exit_layers="1,3")
    verifier = list(verifier_spec(server, {}).argv)
    assert verifier[verifier.index("--exits") + 1] == "e"
    assert verifier[verifier.index("--exit-layers") + 1] == "1,3"
    assert "--exits" not in verifier_spec(ServerConfig(model="m"), {}).argv
    assert (
        verifier[verifier.index("--quantize") + 1] == "4bit"
        and verifier[verifier.index("--model") + 1] == "m"
    )
    emulated = LinkProfile(config.rtt_ms, loss=config.loss, outages=((1.5, 2.0),))
    link = list(emulator_spec("link", emulated, 0, "tcp://127.0.0.1:9", {}).argv)
    assert link[link.index("--rtt") + 1] == "40" and link[link.index("--loss") + 1] == "0.1"
    assert link[link.index("--outage") + 1] == "1.5:2.0" and link.count("--outage") == 1
    node = list(vlm_spec(config, "tcp://127.0.0.1:8", "ar", None, "vlm", {}).argv)
    assert not any("prefetch" in word for word in node)
    assert "prefetch:=false" in vlm_spec(config, "tcp://127.0.0.1:8", "ar", False, "vlm", {}).argv
    assert node.index(str(config.sim_config)) < node.index(str(config.robot_config)), "yours count last"
    assert "gamma:=6" in node and 'method:="ar"' in node


def test_parameters_keep_their_type_on_the_command_line() -> None:
    words = ros_arguments({"a": 1.0, "b": True, "c": "40", "d": 7}, (), {"image": "x/y"})
    assert words == [
        "--ros-args",
        "-p",
        "a:=1.0",
        "-p",
        "b:=true",
        "-p",
        'c:="40"',
        "-p",
        "d:=7",
        "-r",
        "image:=x/y",
    ]


@pytest.mark.slow
def test_both_views_show_a_decision_and_mark_the_policys(capsys: pytest.CaptureFixture[str]) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (224, 140), "#336699").save(picture, "JPEG")
    cost = {"decision_ms": 88.0, "drafted": [4, 4], "accepted": [4, 2], "token_ids": [1] * 8}
    words = {"action": "The next action is turn left 15 degree.", "reasoning": "I see [it]."}
    mine = Decision(index=0, t_s=1.0, source="model", **words, **cost)
    policy = Decision(
        index=1,
        t_s=2.0,
        source="policy",
        action="forward 50",
        note="lost after a turn: forward",
        drafted=[4],
        accepted=[1],
    )
    for make in (PlainView, LiveView):
        out = io.StringIO()
        view = make(Console(file=out, width=160, force_terminal=make is LiveView, color_system="truecolor"))
        view.phase("starting")
        view.episode(0, 3, "find the silver bottle")
        view.tick(DemoScene(1.5, picture.getvalue(), (1.0, 2.0, 0.0)))
        view.decision(mine)
        view.decision(policy)
        view.close()
        text = out.getvalue()
        assert "find the silver bottle" in text
        assert "I see [it]." in text
        assert "exploration policy: forward 50" in text
        assert "88 ms, 6/8 drafts accepted" in text
    assert capsys.readouterr().out == ""


def test_weights_that_change_during_the_run_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"one")
    before = weights_of(str(tmp_path))
    assert before == weights_of(str(tmp_path)) and len(before) == 1
    (tmp_path / "model.safetensors").write_bytes(b"another")
    assert weights_of(str(tmp_path)) != before
    assert weights_of("some/hub-id") == ()


def test_ctrl_c_while_the_report_is_drawn_leaves_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(run: Path) -> Path:
        signal.raise_signal(signal.SIGINT)
        (run / "report.html").write_text("drawn")
        return run / "report.html"

    monkeypatch.setattr("specnav.demo.run.perform", lambda *_: 0)
    monkeypatch.setattr("specnav.demo.journal.write_report", draw)
    with pytest.raises(KeyboardInterrupt):
        run_demo(DemoConfig(out=tmp_path / "run", headless=True))
    assert (tmp_path / "run" / "report.html").read_text() == "drawn"
