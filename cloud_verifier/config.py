"""What the server can be told; checked once, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_verifier.errors import VerifierError
from cloud_verifier.security.binding import check_binding

NO_EXITS = "none"


@dataclass(frozen=True)
class ServerConfig:
    """Settings of one verifier.

    bind: "tcp://HOST:PORT"; port 0 or * takes a free one (the ready line tells which).
    draft_model: a draft model in the cloud, for methods that draft there; "" = none.
    threads: CPU threads of a forward, 0 = one for a small model, else what torch would take.
    session_timeout_s: a session nobody mentions for so long is forgotten.
    max_message_mb: largest message taken (a prompt with its images).
    verify_ms: let every forward take at least so long, to stand in for a larger model; 0 = as it comes.
    draft_ms: the same for the draft model in the cloud.
    exits: a folder of early exits, for sessions that want hints; "" = NAME-exits beside a model NAME-target, if it
    is there, "none" = none.
    exit_layers: which of them: auto (the few that are worth it), all, every:K, or layers like 1,3,5.
    keys: a folder of keys (`specnav keys`): only its clients may come in, encrypted; "" = everybody, in the clear.
    insecure: listen without keys where other machines reach it.
    log_contents: let the log say what may quote prompts, images or answers.
    """

    model: str
    bind: str = "tcp://127.0.0.1:5555"
    device: str = "auto"
    dtype: str = "auto"
    quantize: str = "none"
    draft_model: str = ""
    threads: int = 0
    max_sessions: int = 64
    session_timeout_s: float = 120.0
    max_message_mb: float = 32.0
    verify_ms: float = 0.0
    draft_ms: float = 0.0
    exits: str = ""
    exit_layers: str = "auto"
    keys: str = ""
    insecure: bool = False
    log_contents: bool = False

    def __post_init__(self) -> None:
        if not self.model:
            raise VerifierError("no model given: name a Hugging Face folder or hub id")
        if not self.bind.startswith("tcp://") or ":" not in self.bind[6:]:
            raise VerifierError(f"bind address {self.bind!r} is not usable: give tcp://HOST:PORT")
        for name in ("exits", "exit_layers", "keys"):
            if not isinstance(value := getattr(self, name), str):
                raise VerifierError(f"{name} = {value!r} is no text: put it in quotes")
        for name in ("insecure", "log_contents"):
            if not isinstance(value := getattr(self, name), bool):
                raise VerifierError(f"{name} = {value!r} is neither true nor false")
        check_binding(self.bind, self.keys, self.insecure)
        _check("threads", self.threads, 0, 1024)
        _check("max_sessions", self.max_sessions, 1, 100_000)
        _check("session_timeout_s", self.session_timeout_s, 0.1, 86_400)
        _check("max_message_mb", self.max_message_mb, 0.001, 64)
        _check("verify_ms", self.verify_ms, 0, 60_000)
        _check("draft_ms", self.draft_ms, 0, 60_000)


def _check(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise VerifierError(f"{name} = {value!r} is out of range: choose {low} to {high}")
