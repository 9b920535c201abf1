"""The command line's contract: wrong input ends as one line on stderr and a non-zero exit code, never a traceback."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from importlib.metadata import version

import pytest

from cloud_verifier.config import ServerConfig
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import LinkLost
from specdec.models import load_model
from specdec.settings import settings_of
from specdec.settings_files import read_yaml_file
from specnav.cli import main
from specnav.errors import UsageError, user_errors
from specnav.paths import CONFIG, ROOT
from specnav.serve import serve_settings
from tests.helpers.commands import run_here
from tests.helpers.servers import serving
from tests.helpers.tiny_models import built_pairs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "  "], "the prompt is empty"),
        (["generate", "look", "--image", "/nowhere/a.jpg"], "cannot read image /nowhere/a.jpg"),
        (["generate", "look", "--method", "telepathy"], "method 'telepathy' is unknown"),
        (["generate", "look", "--logit-bias", "five"], "'five' is not ID=VALUE"),
        (["generate", "look", "--logit-bias", "5=inf"], "must be a number from -10000 to 10000, got inf"),
        (["generate", "look", "--logit-bias", "5=1", "--logit-bias", "5=2"], "give each once"),
        (["generate", "look", "--stop", ""], "stop holds ''"),
        (
            ["generate", "look", "--min-new-tokens", "9", "--max-new-tokens", "3"],
            "is more than --max-new-tokens 3",
        ),
        (["generate", "look", "--top-p", "0"], "--top-p must be a number from 1e-09 to 1, got 0.0"),
        (["serve", "--model", "/nowhere/model"], "/nowhere/model"),
        (["serve", "--config", "/nowhere/cloud.yaml"], "cannot read /nowhere/cloud.yaml"),
        (["serve", "--bind", "udp://x"], "give tcp://HOST:PORT"),
        (["demo", "--method", "telepathy"], "method 'telepathy' cannot be used"),
        (["demo", "--pair", "smollm2"], "pair smollm2 takes no pictures: choose one of nav, qwen2-vl"),
        (["replay", "x.mcap", "--pair", "text"], "pair text takes no pictures: choose one of nav, qwen2-vl"),
        (["plan", "memory"], "name the target with --target, or a pair with --pair"),
        (["fleet", "up", "--pair", "smol"], "pair 'smol' is unknown: choose one of smollm2, nav, text"),
        (["demo", "--rtt", "soon"], "--rtt must be a number from 0 to 60000 ms, got 'soon'"),
        (["serve", "--threads", "1.5"], "--threads must be a whole number from 0 to 1024, got '1.5'"),
        (["serve", "--model", "x", "--threads", "1024"], "threads = 1024 is more than this machine's"),
        (["demo", "--out", ""], "--out must be a path, got ''"),
        (["replay", ""], "BAG must be a path, got ''"),
        (["bench", "run", "--questions", ""], "--questions holds ''"),
        (["blackbox", "--show", ""], "must be a path, got ''"),
        (["demo", "--rtt", "-5"], "--rtt must be a number from 0 to 60000 ms, got -5.0"),
        (["fleet", "up", "--cpus", "-1"], "--cpus must be a number from 0 to 1024, got -1.0"),
        (["fleet", "up", "--groups", "17"], "--groups must be a whole number from 1 to 16, got 17"),
        (["api", "--connect", "tcp://x:1", "--gamma", "33"], "--gamma must be a whole number from 1 to 32, got 33"),
        (["replay", "x.mcap", "--rate", "fast"], "--rate must be one of frames, bag, got 'fast'"),
        (["bench", "study", "gama"], "study 'gama' is unknown; choose threads, gamma, queues, exits, link"),
        (["bench", "study", "gamma", "--gamma", "3"], "study gamma varies this itself; leave --gamma out"),
        (["bench", "study", "link", "--redraw", "x"], "leave the study out"),
        (["bench", "study", "link", "--clients", "2"], "study link does not use --clients"),
        (["bench", "study", "cost", "--with", "target_price=cheap"], "a price must be IN,OUT"),
        (["bench", "study", "cost", "--with", "target_price=nan,1"], "a price must be IN,OUT"),
        (["bench", "study", "cost", "--with", "tau=0.5"], "tau must be a number, at least 1, got 0.5"),
        (["bench", "study", "payloads", "--with", "words=3"], "unknown setting words; known are gamma, noise"),
        (["bench", "study", "payloads", "--rtt", "3"], "leave rtt_ms out"),
        (["bench", "study", "--redraw", "/nowhere"], "/nowhere holds no study"),
        (["bench", "study"], "a study must be named"),
        (["bench", "run", "--rtt", "60001"], "--rtt must be a number from 0 to 60000 ms, got 60001"),
        (["bench", "run", "--time-scale", "0.5"], "name one with --point"),
        (["bench", "clients", "1,2", "--time-scale", "0.5"], "name one with --point"),
        (["bench", "run", "--point", "all"], "specnav bench points runs several"),
        (["bench", "clients", "0"], "give e.g. 1,8,16"),
        (["bench", "points", ","], "an operating point must be named"),
        (["bench", "clients", "2", "--methods", "hf-generate"], "cannot be measured with many clients"),
        (["bench", "--clients", "0"], "give e.g. 1,8,16"),  # as it was spelled before
        (["top", "here"], "'here' is not HOST:PORT"),
        (["api"], "give the verifier's address: --connect tcp://HOST:PORT"),
        (["api", "--connect", "tcp://x:1", "--bind", "0.0.0.0:80"], "give --api-keys FILE"),
        (["api", "--connect", "tcp://x:1", "--bind", "here"], "give HOST:PORT"),
        (["api", "--connect", "tcp://x:1", "--api-keys", "/nowhere/keys"], "cannot read the file of API keys"),
        (["api", "--connect", "tcp://x:1", "--method", "split"], "runs layers of the target on the edge"),
        (["api", "--connect", "tcp://x:1", "--bind", "203.0.113.9:1", "--api-keys", "/nowhere/keys"], "/nowhere/keys"),
        (["api", "--new-key", "bob"], "give --api-keys FILE"),
        (["api", "--connect", "foo"], "--connect 'foo' cannot be used: give tcp://HOST:PORT"),
        (["generate", "hi", "--connect", "tcp://127.0.0.1:99999"], "cannot be used"),
        (["demo", "--console", "--connect", "foo"], "cannot be used"),
        (["demo", "--console", "--host", ""], "--host is empty"),
        (["serve", "--bind", "tcp://127.0.0.1:99999"], "cannot be used"),
        (["serve", "--metrics", "0.0.0.0:99999"], "metrics '0.0.0.0:99999' cannot be used: give HOST:PORT"),
        (["serve", "--draft-disturbed", "1:2"], "name one with draft_model"),
        (["top", "--once", "127.0.0.1:1"], "nothing answers at http://127.0.0.1:1/metrics ("),
        (["cost", "--target-price", "cheap"], "a price must be IN,OUT"),
        (["train", "vlm", "--frames", "17"], "frames must be a whole number, at least 2000"),
        (
            ["train", "exits", "--target", "/nowhere/model", "--out", "/nowhere/exits"],
            "/nowhere/model does not exist",
        ),
        (["train", "draft", "--target", "/nowhere/t", "--draft", "layers:0", "--out", "."], "has other content"),
        (["train", "draft", "--target", "/nowhere/t", "--draft", "layers:0", "--out", "/"], "--out /"),
    ],
)
def test_wrong_input_is_one_clear_line(monkeypatch, capsys, arguments, said):
    code, _, err = run_here(monkeypatch, capsys, *arguments)
    complaint = [line for line in err.splitlines() if line.startswith("specnav: error: ")]
    assert code == (2 if "Invalid value" in complaint[0] else 1)
    assert len(complaint) == 1 and said in complaint[0]
    assert "Traceback" not in err


def test_the_version_is_the_packages(monkeypatch, capsys):
    assert run_here(monkeypatch, capsys, "--version") == (0, f"specnav {version('specnav')}\n", "")



@pytest.mark.slow
@pytest.mark.parametrize("given", ["", " , "])
@pytest.mark.parametrize(
    "words",
    [
        *(f"bench {name} --methods" for name in ("run", "points all", "study gamma", "clients 1", "drafts")),
        *(f"bench {name}" for name in ("run", "points", "study", "clients", "run --questions", "run --point")),
        *(f"bench {name}" for name in ("run --outage", "drafts --backends", "drafts --models", "study cost --with")),
        *(f"bench study {name} --clients" for name in ("batch", "clients")),
        *(f"plan fleet --gpu a100 {name}" for name in ("--link", "--methods", "--rtts", "--draft-ms")),
        *(f"doctor --gpu {name}" for name in ("--variants", "--rows", "--contexts")),
        "replay walk.mcap --methods", "record --sim --out walk.mcap --about", "play walk.mcap --remap",
        "drill --faults", "generate look --image", "train text --questions",
    ],
)  # fmt: skip
def test_a_list_that_names_nothing_is_refused_not_taken_for_the_default(monkeypatch, capsys, words, given):
    code, _, err = run_here(monkeypatch, capsys, *words.split(), given)
    assert code in (1, 2)
    assert err.startswith("specnav: error: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    "number",
    [
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS, errno.ENAMETOOLONG),
        *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR),
    ],
)
def test_a_disk_that_takes_nothing_is_told_whatever_was_being_written(capsys, number):
    with pytest.raises(SystemExit) as end, user_errors():
        raise OSError(number, os.strerror(number))
    assert end.value.code == 1 and capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("words", ["No space left on device (os error 28)", "I/O error: No space left on device"])
def test_a_full_disk_is_told_in_whatever_way_a_library_reports_it(capsys, words):
    with pytest.raises(SystemExit) as end, user_errors():
        raise Exception(words)
    assert end.value.code == 1 and capsys.readouterr().err == f"specnav: error: {words}\n"


@pytest.mark.parametrize("words", ["mission run go --out", "bench run --out", "calibrate --out", "train text --out"])
def test_a_file_in_a_folders_place_is_one_line(monkeypatch, capsys, tmp_path, words):
    (tmp_path / "file").write_text("a file")
    code, _, err = run_here(monkeypatch, capsys, *words.split(), tmp_path / "file" / "x")
    assert code == 1 and err.count("\n") == 1 and str(tmp_path / "file") in err


@pytest.mark.parametrize(
    "words", ["bench run --out", "bench study cost --out", "train draft --target x --draft y --out", "train text --out"]
)
def test_a_loop_of_links_is_one_line(monkeypatch, capsys, tmp_path, words):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    code, _, err = run_here(monkeypatch, capsys, *words.split(), tmp_path / "loop")
    assert code == 1 and err.startswith("specnav: error: Too many levels of symbolic links: ")
    assert str(tmp_path / "loop") in err and err.count("\n") == 1


def test_a_name_that_is_no_text_is_refused_before_anything_is_done(monkeypatch, capsys, tmp_path):
    out = tmp_path / os.fsdecode(b"run\xff")
    monkeypatch.setattr(sys, "argv", ["specnav", "bench", "study", "cost", "--out", str(out)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1 and not out.exists()
    assert "run\\udcff' is not text in UTF-8: rename" in capsys.readouterr().err


def test_no_escape_sequence_of_a_name_reaches_the_terminal(capsys):
    with pytest.raises(SystemExit), user_errors():
        raise UsageError("no bag \x1b[31mgrün")
    assert capsys.readouterr().err == "specnav: error: no bag \\x1b[31mgrün\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_awaits_no_signal_ends_by_each_as_by_ctrl_c(monkeypatch, capsys, number):
    monkeypatch.setattr("specnav.cli.app.app", lambda standalone_mode: signal.raise_signal(number))
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)  # pytest may run under nohup
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130 and capsys.readouterr().err == "\ninterrupted\n"


@pytest.mark.slow
def test_an_error_after_the_first_words_of_an_answer_gets_a_line_of_its_own(monkeypatch, capsys):
    whole = EdgeDecoder.generate

    def cut(*given):
        yield next(whole(*given))
        raise LinkLost("the link is gone")

    monkeypatch.setattr(EdgeDecoder, "generate", cut)
    pair = built_pairs()
    with serving(load_model(pair / "text-target")) as address:
        asked = ("generate", "hi", "--connect", address, "--draft-model", pair / "text-draft")
        code, out, err = run_here(monkeypatch, capsys, *asked, "--method", "ar")
    assert code == 1 and "the link is gone" in err
    assert len(out) > 1 and out.endswith("\n")


def test_ctrl_c_within_a_command_is_told_whatever_typer_makes_of_it(monkeypatch, capsys):
    def interrupted(config):
        raise KeyboardInterrupt

    monkeypatch.setattr("specnav.generate.run_generate", interrupted)
    monkeypatch.setattr("sys.argv", ["specnav", "generate", "hello"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130 and capsys.readouterr().err == "\ninterrupted\n"


@pytest.mark.slow
def test_shipped_models_are_found_by_the_names_of_the_documentation_from_any_directory(
    monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    names = ["--target", "default_models/text-target", "--draft", "default_models/text-draft", "--json"]
    code, _, err = run_here(monkeypatch, capsys, "plan", "memory", *names)
    assert code == 0, err
    code, _, err = run_here(
        monkeypatch, capsys, "convert", "gguf", "default_models/text-draft", "--type", "q4_9"
    )
    assert "q4_9" in err
    (tmp_path / "default_models" / "text-target").mkdir(parents=True)
    code, _, err = run_here(monkeypatch, capsys, "plan", "memory", *names)
    assert code == 1 and "default_models/text-target" in err, "what lies here comes first"


def test_the_text_pair_is_trained_into_the_current_directory_where_there_is_no_clone(
    monkeypatch, capsys, tmp_path
):
    from specnav.recipes.text import train

    started = []
    monkeypatch.setattr("specnav.paths.ROOT", tmp_path)
    monkeypatch.setattr(train, "train_text", started.append)
    assert run_here(monkeypatch, capsys, "train", "text")[0] == 0
    assert started[0].out == tmp_path / "default_models"


@pytest.mark.slow
def test_training_in_a_folder_that_cannot_be_made_is_one_line(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").touch()
    arguments = ["--library", ROOT / "specdec", "--run", tmp_path / "file" / "run"]
    code, _, err = run_here(monkeypatch, capsys, "train", "text", *arguments)
    assert code == 1 and err.count("\n") == 1 and "cannot be written" in err


def test_a_file_that_is_no_picture_is_refused(monkeypatch, capsys, tmp_path):
    fake = tmp_path / "photo.jpg"
    fake.write_text("not a photo")
    code, _, err = run_here(monkeypatch, capsys, "generate", "look", "--image", fake)
    assert code == 1 and "neither a JPEG nor a PNG" in err


def test_an_unknown_setting_in_a_file_is_named(monkeypatch, capsys, tmp_path):
    settings = tmp_path / "cloud.yaml"
    settings.write_text("modle: x\n")
    code, _, err = run_here(monkeypatch, capsys, "serve", "--config", settings)
    assert code == 1 and "unknown setting modle" in err and "quantize" in err


def test_a_file_names_settings_as_their_flags_and_takes_their_values(tmp_path):
    file = tmp_path / "cloud.yaml"
    file.write_text("session_timeout: 9\nverify_ms: 72:1\nmodel: x\n")
    config = serve_settings(file, {})
    assert config.session_timeout_s == 9 and config.verify_ms.points == ((1, 72.0),)
    file.write_text("session_timeout_s: 8\nmodel: x\n")
    assert serve_settings(file, {"session_timeout_s": 7.0}).session_timeout_s == 7
    file.write_text("session_timeout: 8\nmodel: x\n")
    assert serve_settings(file, {"session_timeout_s": 7.0}).session_timeout_s == 7


def test_a_files_path_is_that_of_the_current_directory_before_that_of_the_clone(monkeypatch, tmp_path):
    here, shipped = tmp_path / "here", tmp_path / "shipped"
    for folder in (here / "keys", shipped / "keys", shipped / "model"):
        folder.mkdir(parents=True)
    (here / "own.yaml").write_text("keys: keys\nmodel: model\n")
    monkeypatch.setattr("specnav.serve.DATA", shipped)
    monkeypatch.chdir(here)
    config = serve_settings(here / "own.yaml", {})
    assert (config.keys, config.model) == ("keys", str(shipped / "model"))


def test_a_file_that_gives_a_setting_under_both_its_names_is_refused(tmp_path):
    file = tmp_path / "cloud.yaml"
    file.write_text("session_timeout: 9\nsession_timeout_s: 8\nmodel: x\n")
    said = "session_timeout and session_timeout_s are the same setting"
    for flags in ({}, {"session_timeout_s": 7.0}):
        with pytest.raises(UsageError, match=said):
            serve_settings(file, flags)


def test_the_shipped_file_of_the_verifier_repeats_no_default():
    said = read_yaml_file(CONFIG / "cloud.yaml")
    defaults = {name: told.default for name, told in settings_of(ServerConfig).items()}
    assert "model" in said and not [name for name, value in said.items() if value == defaults[name]]


def test_broken_yaml_is_one_line(monkeypatch, capsys, tmp_path):
    settings = tmp_path / "cloud.yaml"
    settings.write_text("model: [unclosed\n")
    code, _, err = run_here(monkeypatch, capsys, "serve", "--config", settings)
    assert code == 1 and "not valid YAML" in err and len(err.strip().splitlines()) == 1


@pytest.mark.slow
def test_cost_prints_the_papers_figures_beside_ours(monkeypatch, capsys):
    code, out, _ = run_here(monkeypatch, capsys, "cost")
    assert code == 0 and out.count("(paper") == 12


@pytest.mark.slow
def test_doctor_as_json_names_every_part(monkeypatch, capsys):
    _, out, _ = run_here(monkeypatch, capsys, "doctor", "--json")
    found = {row["name"]: row["status"] for row in json.loads(out)}
    assert found["torch"] == "ok" and found["Python"] == "ok"
    assert {"ROS 2", "MuJoCo camera", "nav-target", "nav-draft"} <= set(found)


def test_a_package_that_only_one_command_needs_is_named_with_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr("specnav.api.run.find_spec", lambda name: None)
    code, _, err = run_here(monkeypatch, capsys, "api", "--connect", "tcp://127.0.0.1:1")
    assert code == 1 and "specnav api needs fastapi and uvicorn: pip install 'specnav[api]'" in err
