"""`specnav serve`: the cloud verifier in this process, configured by YAML with flags on top."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from harness.children import verifier_spec
from harness.errors import UsageError
from harness.paths import CONFIG, DEFAULT_TARGET, ROOT
from harness.settings import make_settings, read_yaml

VLLM = ROOT / ".venv-vllm"
"""Where `make setup-vllm` puts it: what it needs does not go together with what all the rest needs."""


def run_serve(config: Path | None, flags: Mapping[str, Any]) -> int:
    """Serve until SIGINT or SIGTERM. Raises UsageError, VerifierError or a SpecdecError."""
    from cloud_verifier.config import ServerConfig
    from cloud_verifier.serving import serve

    source = config or CONFIG / "cloud.yaml"
    values: dict[str, Any] = {"model": str(DEFAULT_TARGET)}
    values |= read_yaml(source) if config or source.exists() else {}
    # What the shipped file names is relative to the clone, so that the command works from anywhere.
    for name in ("model", "draft_model", "exits", "keys"):
        if values.get(name) and (ROOT / str(values[name])).exists():
            values[name] = str(ROOT / str(values[name]))
    settings = make_settings(ServerConfig, {**values, **flags}, str(source))
    if settings.engine == "vllm" and importlib.util.find_spec("vllm") is None:
        become_verifier_on_vllm(verifier_spec(settings, {}).argv)
    return serve(settings)


def become_verifier_on_vllm(argv: Sequence[str]) -> NoReturn:
    """This process goes on as the verifier in vLLM's environment: signals and exit code are the same. argv: of the
    verifier, whatever interpreter it names. Raises UsageError where vLLM is not set up.
    """
    command = on_vllm(argv)
    os.execve(command[0], command, vllm_environment(os.environ))


def on_vllm(argv: Sequence[str]) -> list[str]:
    """A verifier's command line, with the interpreter of vLLM's environment. Raises UsageError where there is none."""
    python = VLLM / "bin" / "python"
    if not python.exists():
        raise UsageError("the engine vllm is not set up on this machine: make setup-vllm, or serve with --engine own")
    return [str(python), *argv[1:]]


def vllm_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """With the clone to import from and, on a CPU, the library for threads that vLLM wants loaded first."""
    paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    changed = {**environment, "PYTHONPATH": os.pathsep.join(paths)}
    threads = VLLM / "lib" / "libiomp5.so"
    if threads.exists():
        changed["LD_PRELOAD"] = " ".join([str(threads), *filter(None, [environment.get("LD_PRELOAD")])])
    return changed
