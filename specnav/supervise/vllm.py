# SPDX-License-Identifier: Apache-2.0
"""Where vLLM is: in an environment of its own, as what it needs does not go together with what all the rest needs."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from specnav.errors import UsageError
from specnav.paths import ROOT

VLLM = ROOT / ".venv-vllm"
"""Where `make setup-vllm` puts it."""


def has_own_environment() -> bool:
    """Whether vLLM is to be run by another interpreter than this one."""
    return importlib.util.find_spec("vllm") is None


def vllm_python() -> Path:
    """The interpreter that has it. Raises UsageError where vLLM is not set up."""
    python = VLLM / "bin" / "python"
    if not python.exists():
        raise UsageError("the engine vllm is not set up on this machine: make setup-vllm, or serve with --engine own")
    return python


def vllm_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """With the clone to import from and, on a CPU, the library for threads that vLLM wants loaded first."""
    paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    changed = {**environment, "PYTHONPATH": os.pathsep.join(paths)}
    threads = VLLM / "lib" / "libiomp5.so"
    if threads.exists():
        changed["LD_PRELOAD"] = " ".join([str(threads), *filter(None, [environment.get("LD_PRELOAD")])])
        # Its threads would spin for 200 ms after each forward, on cores that others want.
        changed.setdefault("KMP_BLOCKTIME", "1")
    return changed
