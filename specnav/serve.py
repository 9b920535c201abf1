# SPDX-License-Identifier: Apache-2.0
"""`specnav serve`: runs the cloud verifier in this process, configured by YAML and flags."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cloud_verifier.config import ServerConfig
from specdec.settings import same_as, setting
from specnav.edge_settings import EdgeSettings
from specnav.paths import CONFIG, DATA, DEFAULT_TARGET
from specnav.published.pairs import pair_named
from specnav.settings import make_settings, read_settings
from specnav.supervise.children import verifier_spec
from specnav.supervise.vllm import has_own_environment, vllm_environment, vllm_python


@dataclass(frozen=True)
class ServeSource:
    """Where a verifier's settings come from, in addition to its own options."""

    file: Path | None = setting(
        None, "YAML file. Flags override it.", shown="config/cloud.yaml", flags=("--config",), metavar="PATH"
    )
    pair: str | None = same_as(EdgeSettings, "pair")


def run_serve(source: ServeSource, flags: Mapping[str, Any]) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP. Raises UsageError, VerifierError or a SpecdecError."""
    from cloud_verifier.serving import serve

    settings = serve_settings(source.file, {**flags, "pair": source.pair})
    if settings.engine == "vllm" and has_own_environment():
        become_verifier_on_vllm(verifier_spec(settings, {}).argv)
    return serve(settings)


def serve_settings(config: Path | None, flags: Mapping[str, Any]) -> ServerConfig:
    """A verifier's settings: those of the file, overridden by flags. Raises UsageError, VerifierError."""
    source = config or CONFIG / "cloud.yaml"
    values: dict[str, Any] = {"model": str(DEFAULT_TARGET)}
    values |= read_settings(ServerConfig, source) if config or source.exists() else {}
    flags = dict(flags)
    if name := flags.pop("pair", None):
        values |= models_of(name, flags.get("engine", values.get("engine", ServerConfig.engine)))
    # Paths in the shipped file are relative to its location, so that the command works from any directory. What the
    # current directory has by such a name comes first.
    for name in ("model", "draft_model", "exits", "keys"):
        place = str(values.get(name) or "")
        if place and not Path(place).exists() and (DATA / place).exists():
            values[name] = str(DATA / place)
    return make_settings(ServerConfig, {**values, **flags}, str(source))


def models_of(pair: str, engine: str) -> dict[str, str]:
    """The settings of a verifier that a pair names. Raises UsageError."""
    model, exits = pair_named(pair).served_by(engine)
    return {"model": model, "exits": exits}


def become_verifier_on_vllm(argv: Sequence[str]) -> NoReturn:
    """Replace this process by the verifier in vLLM's environment, so that signals and exit code stay its own. argv: the
    verifier's command line; its interpreter is replaced. Raises UsageError if vLLM is not set up.
    """
    command = on_vllm(argv)
    os.execve(command[0], command, vllm_environment(os.environ))


def on_vllm(argv: Sequence[str]) -> list[str]:
    """A verifier's command line, with vLLM's interpreter. Raises UsageError if vLLM is not set up."""
    return [str(vllm_python()), *argv[1:]]
