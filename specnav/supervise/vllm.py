# SPDX-License-Identifier: Apache-2.0
"""Finds vLLM, which has an environment of its own because its dependencies conflict with ours."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from specnav.errors import UsageError
from specnav.paths import ROOT

VLLM = ROOT / ".venv-vllm"
"""Where `make setup-vllm` installs it."""


def has_own_environment() -> bool:
    """Whether vLLM runs in another interpreter than this one."""
    return importlib.util.find_spec("vllm") is None


def vllm_python() -> Path:
    """Return the interpreter that has vLLM. Raises UsageError if vLLM is not set up."""
    python = VLLM / "bin" / "python"
    if not python.exists():
        raise UsageError("the engine vllm is not set up on this machine: make setup-vllm, or serve with --engine own")
    return python


def vllm_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for vLLM: this clone on PYTHONPATH and, on a CPU, its OpenMP library preloaded."""
    paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    changed = {**environment, "PYTHONPATH": os.pathsep.join(paths)}
    threads = VLLM / "lib" / "libiomp5.so"
    if threads.exists():
        changed["LD_PRELOAD"] = " ".join([str(threads), *filter(None, [environment.get("LD_PRELOAD")])])
        # By default its threads spin for 200 ms after each forward, on cores that other processes need.
        changed.setdefault("KMP_BLOCKTIME", "1")
    return changed
