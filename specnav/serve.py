"""`specnav serve`: the cloud verifier in this process, configured by YAML with flags on top."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.paths import CONFIG, DEFAULT_TARGET, ROOT
from harness.settings import make_settings, read_yaml


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
    return serve(make_settings(ServerConfig, {**values, **flags}, str(source)))
