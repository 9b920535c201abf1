"""The bench's processes: a verifier, and the link emulator where a link is emulated; on this machine only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cloud_verifier.config import ServerConfig
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
        """Wait until the verifier serves, let the link come up, and return where the edge connects.

        Called last, so that outages are counted from the first question on. Raises ChildFailed.
        """
        config = self.config
        endpoint = self._ready(self.verifier)
        if config.link_is_emulated:
            spec = emulator_spec(config, "link", config.rtt_ms, endpoint, {}, config.outages)
            endpoint = self._ready(self.supervisor.start(spec))
        return endpoint

    def _ready(self, child: Child) -> str:
        return endpoint_of(self.supervisor.wait_ready(child, self.config.start_timeout_s))


@contextmanager
def surroundings(
    config: BenchConfig, logs: Path, drafts_in_cloud: bool, server_flags: Sequence[str] = (), engine: str = "own",
    disturbance: Disturbance | None = None,
) -> Iterator[BenchProcesses]:
    """Start the verifier; everything is stopped in any case. Raises ChildFailed, UsageError where vLLM is not set up.

    drafts_in_cloud: give the verifier the draft model, too. server_flags: more words of its command line. engine: its.
    disturbance: of the draft model, where acceptance is emulated.
    """  # fmt: skip
    server = ServerConfig(
        model=config.target_model,
        bind=f"{LOOPBACK}:0",
        device=config.device,
        dtype=config.dtype,
        quantize=config.quantize,
        deterministic=config.deterministic,
        compile=config.compile,
        draft_model=config.draft_model if drafts_in_cloud else "",
        gguf=config.gguf,
        draft_disturbed=str(disturbance or "") if drafts_in_cloud else "",
        verify_ms=config.verify_ms,
        draft_ms=config.draft_ms_in_cloud,
        exits=config.exits,
        exit_layers=config.exit_layers,
        share="none",  # the second method must not find what the first one has worked out
        engine=engine,
    )
    spec = verifier_spec(server, vllm_environment(os.environ) if engine == "vllm" else {})
    argv = on_vllm(spec.argv) if engine == "vllm" else spec.argv
    with Supervisor(logs) as supervisor:
        spec = replace(spec, argv=[*argv, *server_flags])
        yield BenchProcesses(config, supervisor, supervisor.start(spec))
