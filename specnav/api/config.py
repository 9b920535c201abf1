"""What the HTTP server can be told; checked once, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.link.binding import is_loopback
from specdec.options import RESUME_TIMEOUT_S
from specnav.errors import UsageError

MEBIBYTE = 2**20


@dataclass(frozen=True)
class ApiConfig:
    """Settings of one server.

    connect: the verifier, tcp://HOST:PORT; key: of this edge, for a verifier with keys. bind: HOST:PORT, port 0 takes a
    free one. api_keys: file of those who may ask; None: everybody on this machine. name: what the model is called here;
    "": as the verifier calls it.
    answers: made at a time; queue: requests that may wait for one of those. max_tokens: of an answer whose request does
    not say. patience_s: how long an answer tries to go on after a lost link, or where the verifier is busy. drain_s:
    after SIGTERM, answers in flight may take so long to end. max_body_mb: of a request.
    metrics: serve /metrics. log_contents: let the log quote prompts and answers.
    draft_ms: let every draft forward take at least so long, to stand in for a slower device; 0: as it comes. together:
    answers that share a draft forward.
    """

    connect: str
    key: Path | None = None
    draft_model: str | None = None
    gguf: str = ""
    quantize: str = "none"
    pixels: int = 0
    device: str = "auto"
    method: str = "auto"
    gamma: int = 4
    bind: str = "127.0.0.1:8000"
    api_keys: Path | None = None
    name: str = ""
    answers: int = 16
    queue: int = 64
    max_tokens: int = 1024
    patience_s: float = RESUME_TIMEOUT_S
    drain_s: float = 10.0
    max_body_mb: float = 32.0
    metrics: bool = False
    log_contents: bool = False
    draft_ms: float = 0.0
    together: int = 64

    def __post_init__(self) -> None:
        """Raises UsageError."""
        host_and_port(self.bind)
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
    """What HOST:PORT says; [::1]:8000 for an address with colons. Raises UsageError."""
    host, colon, port = bind.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"bind address {bind!r} is not usable: give HOST:PORT, like 127.0.0.1:8000")
    return host.strip("[]"), int(port)
