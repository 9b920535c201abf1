# SPDX-License-Identifier: Apache-2.0
"""The settings of the HTTP server; checked once, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.link.binding import check_address, is_loopback, is_port
from specdec.options import DecodingOptions, ModelOptions
from specdec.settings import REQUIRED, check_settings, same_as, setting
from specnav.edge_settings import EdgeSettings
from specnav.errors import UsageError

MEBIBYTE = 2**20


@dataclass(frozen=True)
class ApiConfig:
    """Settings of one server. draft_ms: minimum time of a draft forward pass, to stand in for a slower device.
    together: most answers that share a draft forward pass.
    """

    connect: str = same_as(
        EdgeSettings,
        "connect",
        default=REQUIRED,
        help="Verifier at tcp://HOST:PORT, or fleet at fleet://HOST:PORT; it runs the model that answers.",
    )
    key: Path | None = same_as(EdgeSettings, "key")
    pair: str | None = same_as(EdgeSettings, "pair")
    draft_model: str | None = same_as(EdgeSettings, "draft_model")
    gguf: str = same_as(ModelOptions, "gguf")
    quantize: str = same_as(ModelOptions, "quantize")
    pixels: int = same_as(ModelOptions, "pixels")
    device: str = same_as(ModelOptions, "device")
    method: str = same_as(DecodingOptions, "method", default="auto")
    gamma: int = same_as(DecodingOptions, "gamma")
    bind: str = setting("127.0.0.1:8000", "Where to listen; port 0 takes a free one.", metavar="HOST:PORT")
    api_keys: Path | None = setting(
        None, "File of names and hashes of API keys. Without it only this machine is served.", metavar="FILE"
    )
    name: str = setting("", "Name of the model in this API.", shown="the verifier's name for it")
    answers: int = setting(16, "Most answers at a time.", 1, 512)
    queue: int = setting(64, "Most waiting requests; further ones get status 429.", 0, 100_000)
    max_tokens: int = setting(1024, "Default length limit of chat answers.", 1, 1_000_000)
    patience_s: float = same_as(DecodingOptions, "patience_s")
    drain_s: float = setting(
        10.0, "Time for running answers to end after SIGTERM.", 1, 3600, unit="s", flags=("--drain",)
    )
    max_body_mb: float = setting(32.0, "Largest request body.", 0.001, 1024, unit="MB")
    metrics: bool = setting(False, "Serve /metrics, for Prometheus.")
    log_contents: bool = setting(False, "Let the log quote prompts and answers, to find an error.")
    draft_ms: float = 0.0
    together: int = 64

    def __post_init__(self) -> None:
        """Raises UsageError."""
        check_settings(self, UsageError)
        host_and_port(self.bind)
        check_address(self.connect, "--connect", UsageError)
        if self.api_keys is None and not is_loopback(self.bind):
            raise UsageError(
                f"{self.bind} is open to other machines and there are no keys: give --api-keys FILE "
                "(specnav api --new-key NAME --api-keys FILE makes one)"
            )

    @property
    def max_body_bytes(self) -> int:
        """max_body_mb in bytes."""
        return int(self.max_body_mb * MEBIBYTE)


def host_and_port(bind: str) -> tuple[str, int]:
    """The parts of HOST:PORT; IPv6 addresses are written [::1]:8000. Raises UsageError."""
    host, colon, port = bind.rpartition(":")
    if not colon or not host or not is_port(port):
        raise UsageError(f"bind address {bind!r} is not usable: give HOST:PORT, like 127.0.0.1:8000")
    return host.strip("[]"), int(port)
