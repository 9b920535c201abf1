"""llama.cpp's binding: built once for a machine, found again, never mistaken for another build. Nothing is compiled."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import setup_env  # noqa: E402
import setup_gguf  # noqa: E402


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What is asked of pip; where a wheel is wanted, one is made."""
    calls: list[tuple[str, ...]] = []

    def run(*arguments: str, settings: dict[str, str] | None = None) -> None:
        calls.append((*arguments, (settings or {}).get("CMAKE_ARGS", "")))
        if arguments[0] == "wheel":
            (Path(arguments[arguments.index("-w") + 1]) / "llama_cpp_python-1-py3-none-any.whl").touch()

    monkeypatch.setattr(setup_gguf, "pip", run)
    monkeypatch.setattr(setup_gguf, "check_tools", lambda environment: None)
    return calls


def test_a_wheel_is_built_once_and_found_again(
    environment: dict[str, str], pip: list[tuple[str, ...]]
) -> None:
    assert setup_gguf.cached_wheel(environment) is None
    wheel = setup_gguf.build(environment)
    assert setup_gguf.cached_wheel(environment) == wheel and wheel.is_file()
    assert pip[0][0] == "wheel" and pip[0][-1] == "-DLLAVA_BUILD=OFF"
    assert [path.name for path in wheel.parents[1].iterdir()] == [wheel.parent.name]  # no scratch stays


def test_a_build_with_other_arguments_or_for_another_processor_is_another(
    environment: dict[str, str], pip: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    setup_gguf.build(environment)
    cuda = {**environment, "CMAKE_ARGS": "-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=87"}
    assert (
        setup_gguf.cached_wheel(cuda) is None
        and setup_gguf.on_gpu(cuda)
        and not setup_gguf.on_gpu(environment)
    )
    setup_gguf.build(cuda)
    assert pip[-1][-1] == "-DLLAVA_BUILD=OFF -DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=87"
    monkeypatch.setattr(setup_gguf, "processor", lambda: "another")
    assert setup_gguf.cached_wheel(environment) is None


def test_somebody_who_was_faster_is_no_error(environment: dict[str, str], pip: list[tuple[str, ...]]) -> None:
    first = setup_gguf.build(environment)
    assert setup_gguf.build(environment) == first


def test_without_a_compiler_the_apt_line_is_told(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_gguf.shutil, "which", lambda name: None)
    with pytest.raises(setup_gguf.SetUpFailed, match=r"apt-get install .* g\+\+"):
        setup_gguf.check_tools(environment)


def test_without_a_cuda_compiler_a_build_for_cuda_does_not_begin(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_gguf.shutil, "which", lambda name: "/usr/bin/g++" if name == "g++" else None)
    monkeypatch.setattr(setup_gguf, "NVCC", Path("/nowhere/nvcc"))
    setup_gguf.check_tools(environment)
    with pytest.raises(setup_gguf.SetUpFailed, match="no CUDA compiler"):
        setup_gguf.check_tools({**environment, "CMAKE_ARGS": "-DGGML_CUDA=on"})


def test_of_a_failed_build_the_lines_that_say_why_are_shown() -> None:
    output = "Building\n" * 50 + "CMake Error at a.txt:1:\n\n  The target CUDA::cublas\n  is missing.\n" + "tail\n" * 50
    assert setup_gguf.telling(output) == ["CMake Error at a.txt:1:", "  The target CUDA::cublas", "  is missing."]
    assert setup_gguf.telling("one\ntwo\n") == ["one", "two"]


def test_the_development_set_up_installs_what_was_built_and_waits_for_nothing_else(
    environment: dict[str, str], pip: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(dev: bool) -> list[str]:
        return [step.name for together in setup_env.steps("sourced-humble", dev) for step in together]

    step = "llama.cpp (built here before)"
    monkeypatch.setenv("XDG_CACHE_HOME", environment["XDG_CACHE_HOME"])
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    monkeypatch.setattr(setup_gguf, "installed", lambda: False)
    assert step not in names(dev=True)
    setup_gguf.build({**environment})
    assert step in names(dev=True) and step not in names(dev=False)
    monkeypatch.setattr(setup_gguf, "installed", lambda: True)  # whatever build it is
    assert step not in names(dev=True)


def test_the_versions_of_set_up_and_package_are_the_same() -> None:
    version = setup_gguf.wanted_version()
    (extra,) = [
        line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("gguf = [")
    ]
    assert f"{setup_gguf.PACKAGE}>={version}" in extra


def test_the_tests_of_llama_cpp_alone_follow_its_set_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **settings: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 5)

    monkeypatch.setattr(setup_gguf, "cached_wheel", lambda environment: tmp_path / "x.whl")
    monkeypatch.setattr(setup_gguf, "install", lambda wheel: None)
    monkeypatch.setattr(setup_gguf, "check_import", lambda: "without a GPU")
    monkeypatch.setattr(setup_gguf.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["setup_gguf.py", "--test", "-k", "tower"])
    assert setup_gguf.main() == 5
    assert asked[0][1:5] == ["-m", "pytest", "-m", "gguf"] and asked[0][-2:] == ["-k", "tower"]
    assert asked[1][3:6] == ["tests/engine_contract", "--engine", "llamacpp"] and asked[1][-2:] == ["-k", "tower"]
    monkeypatch.setattr(sys, "argv", ["setup_gguf.py", "-k", "tower"])
    with pytest.raises(SystemExit):
        setup_gguf.main()


def test_ci_begins_with_the_readmes_test_command_where_nothing_else_is_set_up() -> None:
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if not line.startswith("#")]
    assert re.findall(r"make ([a-z-]+)", "\n".join(lines)) == [
        "test",
        "test-gguf",
        "test-real",
        "test-vllm",
        "test-docker",
    ]
    assert "\nmake test " in (ROOT / "README.md").read_text()
