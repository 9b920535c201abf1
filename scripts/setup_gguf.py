# SPDX-License-Identifier: Apache-2.0
"""`make setup-gguf`: llama.cpp with its Python binding, built once on this machine and kept outside the clone.

The binding has no wheels on the package index: it is compiled, for minutes. What comes out lies under
${XDG_CACHE_HOME:-~/.cache}/specnav/wheels, by a key of all that it depends on (version, Python, processor,
CMAKE_ARGS), and is installed from there in seconds: by this program, and by `make setup-dev` where it lies there
already. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
PACKAGE, MODULE = "llama-cpp-python", "llama_cpp"
DEFAULTS = ("-DLLAVA_BUILD=OFF",)
"""Pictures go through our own vision tower: without llama.cpp's, building takes a third of the time."""
CORE_SECONDS = 330
"""What one core needs for a build without a GPU."""
NVCC = Path("/usr/local/cuda/bin/nvcc")
"""Where CUDA's compiler lies, which a Jetson does not have on its path."""


class SetUpFailed(Exception):
    """A part of the set-up could not be built or installed; the message says why and what to do."""


def say(text: str) -> None:
    """One line of progress."""
    print(f"\033[1m[set-up]\033[0m {text}", flush=True)


def wanted_version() -> str:
    """The version that was tested together with everything else."""
    (found,) = re.findall(rf"^{PACKAGE}==(\S+)", CONSTRAINTS.read_text(), re.M)
    return str(found)


def cmake_args(environment: Mapping[str, str]) -> str:
    """Ours, and behind them the user's, which win."""
    return " ".join([*DEFAULTS, *shlex.split(environment.get("CMAKE_ARGS", ""))])


def processor() -> str:
    """What kind of processor this is: a build is made for just this one (GGML_NATIVE)."""
    try:
        told = Path("/proc/cpuinfo").read_text()
    except OSError:
        told = ""
    features = re.findall(r"^(?:flags|Features)\s*:.*", told, re.M)
    return f"{platform.system()} {platform.machine()} {features[0] if features else platform.processor()}"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where the wheel for this machine and these CMAKE_ARGS lies, or would lie."""
    base = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specnav" / "wheels"
    parts = (
        wanted_version(),
        f"{sys.version_info[0]}.{sys.version_info[1]}",
        processor(),
        cmake_args(environment),
    )
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return base / f"{PACKAGE}-{wanted_version()}-{key}"


def cached_wheel(environment: Mapping[str, str]) -> Path | None:
    """The wheel, if it was built before."""
    return next(iter(sorted(cache_folder(environment).glob("*.whl"))), None)


def installed() -> bool:
    """Whether there is a binding in this environment, of whatever build."""
    return importlib.util.find_spec(MODULE) is not None


def on_gpu(environment: Mapping[str, str]) -> bool:
    """Whether the build is one for CUDA."""
    return bool(re.search(r"-DGGML_CUDA(:BOOL)?=(on|1|true|yes)\b", cmake_args(environment), re.I))


def check_tools(environment: Mapping[str, str]) -> None:
    """Raises SetUpFailed where something to compile with is missing. cmake itself pip brings, where there is none."""
    compiler = environment.get("CXX", "").split()[:1] or ["g++"]
    if shutil.which(compiler[0]) is None and shutil.which("c++") is None:
        raise SetUpFailed("no C++ compiler: sudo apt-get install -y --no-install-recommends g++ cmake make")
    if on_gpu(environment) and not (environment.get("CUDACXX") or shutil.which("nvcc") or NVCC.exists()):
        raise SetUpFailed("no CUDA compiler: install nvcc of your CUDA, or set CUDACXX to it")


def how_long(environment: Mapping[str, str]) -> str:
    """In words."""
    cores = len(os.sched_getaffinity(0))
    if on_gpu(environment):
        return f"tens of minutes on {cores} cores, most of it for CUDA's kernels; once"
    return f"about {max(1, round(CORE_SECONDS / cores / 60))} min on {cores} cores with nothing else to do; once"


def build(environment: Mapping[str, str]) -> Path:
    """Compile and keep the wheel. Raises SetUpFailed."""
    check_tools(environment)
    goal = cache_folder(environment)
    settings = {**environment, "CMAKE_ARGS": cmake_args(environment)}
    if on_gpu(environment) and not environment.get("CUDACXX") and shutil.which("nvcc") is None:
        settings["CUDACXX"] = str(NVCC)
    say(f"{PACKAGE} {wanted_version()}: compiling with {settings['CMAKE_ARGS']} ({how_long(environment)}) …")
    began = time.monotonic()
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=goal.parent) as scratch:
            made = Path(scratch) / "wheel"
            made.mkdir()
            pip(
                "wheel", "--no-deps", "--no-binary", PACKAGE, "-w", str(made), _requirement(), settings=settings
            )
            if not goal.exists():
                os.rename(made, goal)
    except OSError as error:
        if cached_wheel(environment) is None:  # Otherwise another process was faster
            raise SetUpFailed(
                f"cannot write into {goal.parent} ({error.strerror}): set XDG_CACHE_HOME"
            ) from error
    wheel = cached_wheel(environment)
    if wheel is None:
        raise SetUpFailed(f"{goal} holds no wheel: remove the folder and try again")
    say(f"{wheel}: {time.monotonic() - began:.0f} s")
    return wheel


def install(wheel: Path) -> None:
    """Into this environment, in place of any other build of the same version. Raises SetUpFailed."""
    pip("install", "--no-deps", "--force-reinstall", str(wheel))
    pip("install", "-c", str(CONSTRAINTS), _requirement())  # what it needs beside it


def check_import() -> str:
    """What the installed library says of itself. Raises SetUpFailed where it does not load."""
    code = (
        "from llama_cpp import llama_cpp as library; library.llama_backend_init();"
        "print('with a GPU' if library.llama_supports_gpu_offload() else 'without a GPU')"
    )
    run = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True)
    if run.returncode:
        last = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
        raise SetUpFailed(f"{PACKAGE} is installed and does not load: {last}")
    return run.stdout.strip().splitlines()[-1]


def _requirement() -> str:
    return f"{PACKAGE}=={wanted_version()}"


def pip(
    *arguments: str, python: str | Path = sys.executable, settings: Mapping[str, str] | None = None, check: bool = True
) -> bool:
    """Run pip quietly; returns whether it succeeded. Raises SetUpFailed if it did not, unless `check` is False."""
    command = [str(python), "-m", "pip", arguments[0], "--disable-pip-version-check", "-q", *arguments[1:]]
    run = subprocess.run(
        command, cwd=ROOT, env=dict(settings) if settings else None, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    if run.returncode and check:
        raise SetUpFailed("\n".join([f"pip {' '.join(arguments)} failed:", *telling(run.stdout)]))
    return run.returncode == 0


def telling(output: str) -> list[str]:
    """The lines of a failed build that say why: errors, and what stands below each; else its end."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    found: dict[int, str] = {}
    for place, line in enumerate(lines):
        if re.search(r"\berror\b", line, re.I) and "subprocess" not in line:
            found.update(enumerate(lines[place : place + 3], start=place))
    return list(found.values())[:12] or lines[-8:]


def main() -> int:
    """Build where there is no wheel yet, and install; exit code 1 where that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel-only", action="store_true", help="build and keep the wheel, install nothing")
    parser.add_argument("--test", action="store_true", help="then run the tests that need llama.cpp, and no others")
    options, rest = parser.parse_known_args()
    if rest and not options.test:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        wheel = cached_wheel(os.environ)
        if wheel is None:
            wheel = build(os.environ)
        else:
            say(f"{wheel} was built before")
        if not options.wheel_only:
            install(wheel)
            say(f"llama.cpp is ready, {check_import()}: --draft-model FILE.gguf, or specnav serve --engine llamacpp")
    except SetUpFailed as error:
        print(f"[set-up] error: {error}", file=sys.stderr)
        return 1
    return run_tests(rest) if options.test else 0


NOTHING_CHOSEN = 5
"""pytest's exit code where -k leaves no test."""


def run_tests(arguments: list[str]) -> int:
    """The tests that are left out without llama.cpp, and the engines' contract on it; returns pytest's exit code."""
    cores = str(len(os.sched_getaffinity(0)))
    codes = []
    for chosen in (("-m", "gguf"), ("tests/engine_contract", "--engine", "llamacpp")):
        command = [sys.executable, "-m", "pytest", *chosen, "-n", cores, "--dist", "worksteal", *arguments]
        codes.append(subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode)
    return next((code for code in codes if code not in (0, NOTHING_CHOSEN)), min(codes))


if __name__ == "__main__":
    sys.exit(main())
