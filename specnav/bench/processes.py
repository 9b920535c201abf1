"""The bench's processes: a verifier, and the link emulator where a link is emulated; on this machine only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cloud_verifier.config import ServerConfig
from specnav.bench.config import BenchConfig
from specnav.demo.children import LOOPBACK, emulator_spec, endpoint_of, verifier_spec
from specnav.demo.processes import Supervisor


@dataclass(frozen=True)
class Surroundings:
    """The running processes and where the edge connects."""

    supervisor: Supervisor
    endpoint: str


@contextmanager
def surroundings(config: BenchConfig, logs: Path, drafts_in_cloud: bool) -> Iterator[Surroundings]:
    """Start them and wait until they serve; stopped in any case. Raises ChildFailed.

    drafts_in_cloud: give the verifier the draft model, too.
    """
    server = ServerConfig(
        model=config.target_model,
        bind=f"{LOOPBACK}:0",
        device=config.device,
        dtype=config.dtype,
        quantize=config.quantize,
        draft_model=config.draft_model if drafts_in_cloud else "",
        verify_ms=config.verify_ms,
        draft_ms=config.draft_ms_in_cloud,
    )
    with Supervisor(logs) as supervisor:
        verifier = supervisor.start(verifier_spec(server, {}))
        endpoint = endpoint_of(supervisor.wait_ready(verifier, config.start_timeout_s))
        if config.link_is_emulated:
            spec = emulator_spec(config, "link", config.rtt_ms, endpoint, {}, config.outages)
            link = supervisor.start(spec)
            endpoint = endpoint_of(supervisor.wait_ready(link, config.start_timeout_s))
        yield Surroundings(supervisor, endpoint)
