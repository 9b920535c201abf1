# SPDX-License-Identifier: Apache-2.0
"""The bench's processes: a verifier and, for an emulated link, the link emulator; on this machine only.

The verifier's target can also be loaded here, to answer alone.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cloud_verifier.config import ServerConfig
from cloud_verifier.logs import EventLog
from specdec.models import LoadedModel, load_model
from specdec.sampling.disturbed import Disturbance
from specnav.bench.settings import BenchConfig
from specnav.serve import on_vllm
from specnav.supervise.children import LOOPBACK, emulator_spec, endpoint_of, verifier_spec
from specnav.supervise.processes import Child, Supervisor
from specnav.supervise.vllm import vllm_environment


@dataclass(frozen=True)
class BenchProcesses:
    """The processes of a run. The verifier loads its model while the caller loads the edge's."""

    config: BenchConfig
    supervisor: Supervisor
    verifier: Child

    def open_link(self) -> str:
        """Wait until the verifier serves, start the link emulator, and return the endpoint for the edge.

        Called last, because outages count from the start of the emulator. Raises ChildFailed.
        """
        config = self.config
        endpoint = self._ready(self.verifier)
        if config.link_is_emulated:
            spec = emulator_spec("link", config.profile(), config.seed, endpoint, {})
            endpoint = self._ready(self.supervisor.start(spec))
        return endpoint

    def _ready(self, child: Child) -> str:
        return endpoint_of(self.supervisor.wait_ready(child, self.config.start_timeout_s))


@contextmanager
def surroundings(
    config: BenchConfig, logs: Path, drafts_in_cloud: bool, server_flags: Sequence[str] = (),
    disturbance: Disturbance | None = None,
) -> Iterator[BenchProcesses]:
    """Start the verifier; all processes stop with the block. Raises ChildFailed, or UsageError if vLLM is not set up.

    drafts_in_cloud: whether the verifier also loads the draft model. server_flags: further arguments of its command
    line. disturbance: of the draft model, where acceptance is emulated.
    """  # fmt: skip
    server = replace(
        served_target(config),
        draft_model=config.draft_model if drafts_in_cloud else "",
        gguf=config.gguf if drafts_in_cloud else "",
        draft_disturbed=str(disturbance or "") if drafts_in_cloud else "",
        verify_ms=config.verify_ms,
        draft_ms=config.draft_ms_in_cloud,
    )
    on_vllm_here = config.engine == "vllm"
    spec = verifier_spec(server, vllm_environment(os.environ) if on_vllm_here else {})
    argv = on_vllm(spec.argv) if on_vllm_here else spec.argv
    with Supervisor(logs) as supervisor:
        spec = replace(spec, argv=[*argv, *server_flags])
        yield BenchProcesses(config, supervisor, supervisor.start(spec))


def served_target(config: BenchConfig) -> ServerConfig:
    """The verifier's settings that affect its answers."""
    return ServerConfig(
        model=config.target_model,
        bind=f"{LOOPBACK}:0",
        engine=config.engine,
        gpu_layers=config.gpu_layers,
        kv_type=config.kv_type,
        device=config.device,
        dtype=config.dtype,
        quantize=config.quantize,
        deterministic=config.deterministic,
        compile=config.compile,
        exits=config.exits,
        exit_layers=config.exit_layers,
        share="none",  # a method must not reuse what an earlier one computed
    )


def load_target(config: BenchConfig) -> LoadedModel:
    """Load the target on the verifier's engine; for vLLM, on our own. Raises ModelError, VerifierError."""
    if config.engine == "llamacpp":
        from cloud_verifier.engine_llamacpp.target import load_target as load_on_llamacpp

        return load_on_llamacpp(served_target(config), EventLog(io.StringIO()))
    return load_model(
        config.target_model, config.device, config.dtype, config.quantize, deterministic=config.deterministic,
        compile=config.compile,
    )  # fmt: skip


def may_round(config: BenchConfig, target: LoadedModel) -> bool:
    """Whether a token's logits may depend on the other rows of its forward, so that near-ties may flip."""
    return config.engine == "llamacpp" or target.dtype.itemsize < 4
