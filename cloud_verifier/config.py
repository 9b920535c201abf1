"""What the server can be told; checked once, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_verifier.engine.policy import Policy
from cloud_verifier.errors import VerifierError
from cloud_verifier.limits import MEBIBYTE, Limits, check_range
from cloud_verifier.security.binding import check_binding
from specdec.verdict_log import CONTENTS, MOST_BYTES, VerdictLog

NO_EXITS = "none"
SHARES = ("key", "all", "none")
ENGINES = ("own", "vllm")
LOOKUP = "ngram"
"""For draft_model: no model, what followed before is looked up."""


@dataclass(frozen=True)
class ServerConfig:
    """Settings of one verifier.

    engine: "own", or "vllm" (cloud_verifier.engine_vllm), which has to be installed and refuses what it cannot do.
    tensor_parallel: GPUs that share the target, for the engine vllm; without any, processes on the CPU.
    bind: "tcp://HOST:PORT"; port 0 or * takes a free one (the ready line tells which).
    pixels: of a picture as the models see it, larger ones are scaled down; 0: about a megapixel.
    draft_model: a draft model in the cloud, for methods that draft there; "" = none, LOOKUP = what followed before is
    looked up. gguf: of one in a GGUF file (specdec.models.GgufOptions). draft_disturbed: STRENGTH:SEED, its logits are
    disturbed so, to stand in for a weaker draft (specdec.sampling.disturbed); "" = not.
    threads: CPU threads of a forward, 0 = one for a small model, else what torch would take.
    session_timeout_s: a session nobody mentions for so long is forgotten.
    max_message_mb: largest message taken (a prompt with its images).
    verify_ms: let every forward take at least so long, to stand in for a larger model; 0 = as it comes.
    draft_ms: the same for the draft model in the cloud.
    exits: a folder of early exits, for sessions that want hints; "" = NAME-exits beside a model NAME-target, if it
    is there, "none" = none.
    exit_layers: which of them: auto (the few that are worth it), all, every:K, or layers like 1,3,5.
    max_client_sessions to max_kept_pictures_mb: bounds on one client, see `Limits`; max_total_queued_mb: what may wait
    for the engine of all of them together; max_total_kept_pictures_mb: of pictures that are kept for all of them.
    keys: a folder of keys (`specnav keys`): only its clients may come in, encrypted; "" = everybody, in the clear.
    deterministic: slower; in half precision, too, what a row gives does not depend on those that share its forward.
    compile: the layers of its models are compiled by torch.
    insecure: listen without keys where other machines reach it.
    log_contents: let the log say what may quote prompts, images or answers.
    kv_gb: what the caches of all sessions may take; 0 = half of what is free when the models are loaded.
    forward_rows, forward_latency_ms, prompt_rows, groups: which sessions share a forward, see `Policy`.
    share: who shares the caches of equal prompts and pictures: key (sessions of one key; without keys everybody), all,
    or none. shared_mb: what is kept of them for sessions to come, 0 = as `shared_bytes` says.
    drain_s: after SIGTERM, answers in flight may take so long to end.
    verdict_log: a folder that keeps what the target says, for drafts to learn from (specdec.verdict_log); "" = none.
    verdict_log_contents: tokens, or prompts or pictures beside them; verdict_log_mb: of more, the oldest part goes.
    metrics: HOST:PORT of /metrics, /healthz and /readyz; "" = none.
    """

    model: str
    bind: str = "tcp://127.0.0.1:5555"
    engine: str = "own"
    tensor_parallel: int = 1
    device: str = "auto"
    dtype: str = "auto"
    quantize: str = "none"
    pixels: int = 0
    draft_model: str = ""
    gguf: str = ""
    draft_disturbed: str = ""
    threads: int = 0
    max_sessions: int = 64
    session_timeout_s: float = 120.0
    max_message_mb: float = 32.0
    verify_ms: float = 0.0
    draft_ms: float = 0.0
    exits: str = ""
    exit_layers: str = "auto"
    max_client_sessions: int = Limits.sessions
    max_queued_mb: float = Limits.queued_bytes / MEBIBYTE
    max_total_queued_mb: float = 256.0
    max_queued_forwards: int = Limits.queued_forwards
    max_draft_nodes: int = Limits.draft_nodes
    max_messages_per_s: float = Limits.messages_per_s
    max_images: int = Limits.images
    max_image_megapixels: float = Limits.image_pixels / 1e6
    max_output_mb: float = Limits.output_bytes / MEBIBYTE
    max_kept_pictures_mb: float = Limits.picture_bytes / MEBIBYTE
    max_total_kept_pictures_mb: float = 256.0
    keys: str = ""
    deterministic: bool = False
    compile: bool = False
    insecure: bool = False
    log_contents: bool = False
    kv_gb: float = 0.0
    share: str = "key"
    shared_mb: float = 0.0
    forward_rows: int = Policy.rows
    forward_latency_ms: float = Policy.latency_ms
    prompt_rows: int = Policy.chunk
    groups: int = Policy.groups
    drain_s: float = 5.0
    verdict_log: str = ""
    verdict_log_contents: str = "tokens"
    verdict_log_mb: float = MOST_BYTES / MEBIBYTE
    metrics: str = ""

    def __post_init__(self) -> None:
        if not self.model:
            raise VerifierError("no model given: name a Hugging Face folder or hub id")
        if not self.bind.startswith("tcp://") or ":" not in self.bind[6:]:
            raise VerifierError(f"bind address {self.bind!r} is not usable: give tcp://HOST:PORT")
        for name in ("exits", "exit_layers", "keys", "metrics", "draft_disturbed", "verdict_log"):
            if not isinstance(value := getattr(self, name), str):
                raise VerifierError(f"{name} = {value!r} is no text: put it in quotes")
        for name in ("deterministic", "compile", "insecure", "log_contents"):
            if not isinstance(value := getattr(self, name), bool):
                raise VerifierError(f"{name} = {value!r} is neither true nor false")
        check_binding(self.bind, self.keys, self.insecure)
        check_range("pixels", self.pixels, 0, 64_000_000)
        check_range("threads", self.threads, 0, 1024)
        check_range("kv_gb", self.kv_gb, 0, 100_000)
        check_range("shared_mb", self.shared_mb, 0, 100_000_000)
        check_range("verdict_log_mb", self.verdict_log_mb, 1, 1_000_000)
        if self.verdict_log_contents not in CONTENTS:
            raise VerifierError(
                f"verdict_log_contents = {self.verdict_log_contents!r} is unknown: choose {', '.join(CONTENTS)}"
            )
        if self.verdict_log and self.engine != "own":
            raise VerifierError("a verdict log is kept by the engine own alone: leave verdict_log out")
        if self.engine not in ENGINES:
            raise VerifierError(f"engine = {self.engine!r} is none of {', '.join(ENGINES)}")
        check_range("tensor_parallel", self.tensor_parallel, 1, 64)
        if self.tensor_parallel > 1 and self.engine != "vllm":
            raise VerifierError(
                f"tensor_parallel = {self.tensor_parallel} is for the engine vllm: our own keeps a model on one GPU; "
                "leave it out, or serve with --engine vllm"
            )
        if self.share not in SHARES:
            raise VerifierError(f"share = {self.share!r} is none of {', '.join(SHARES)}")
        check_range("forward_rows", self.forward_rows, 1, 1_000_000)
        check_range("forward_latency_ms", self.forward_latency_ms, 0, 60_000)
        check_range("prompt_rows", self.prompt_rows, 1, 1_000_000)
        check_range("groups", self.groups, 1, 16)
        check_range("drain_s", self.drain_s, 0, 3600)
        check_range("max_sessions", self.max_sessions, 1, 100_000)
        check_range("session_timeout_s", self.session_timeout_s, 0.1, 86_400)
        check_range("max_message_mb", self.max_message_mb, 0.001, 64)
        check_range("verify_ms", self.verify_ms, 0, 60_000)
        check_range("draft_ms", self.draft_ms, 0, 60_000)
        check_range("max_client_sessions", self.max_client_sessions, 1, 100_000)
        check_range("max_queued_mb", self.max_queued_mb, 0.001, 100_000)
        check_range("max_total_queued_mb", self.max_total_queued_mb, 0.001, 100_000)
        check_range("max_queued_forwards", self.max_queued_forwards, 1, 100_000)
        check_range("max_draft_nodes", self.max_draft_nodes, 1, 4096)
        check_range("max_messages_per_s", self.max_messages_per_s, 1, 1_000_000)
        check_range("max_images", self.max_images, 0, 64)
        check_range("max_image_megapixels", self.max_image_megapixels, 0.001, 2000)
        check_range("max_output_mb", self.max_output_mb, 0.001, 100_000)
        check_range("max_kept_pictures_mb", self.max_kept_pictures_mb, 0, 100_000)
        check_range("max_total_kept_pictures_mb", self.max_total_kept_pictures_mb, 0, 100_000)

    @property
    def policy(self) -> Policy:
        """Which sessions share a forward."""
        return Policy(self.forward_rows, self.prompt_rows, self.groups, self.forward_latency_ms)

    @property
    def max_message_bytes(self) -> int:
        """max_message_mb in bytes."""
        return int(self.max_message_mb * MEBIBYTE)

    @property
    def limits(self) -> Limits:
        """Bounds on a client that has none of its own."""
        return Limits(
            sessions=min(self.max_client_sessions, self.max_sessions),
            queued_bytes=max(1024, int(self.max_queued_mb * MEBIBYTE)),
            queued_forwards=self.max_queued_forwards,
            draft_nodes=self.max_draft_nodes,
            messages_per_s=self.max_messages_per_s,
            burst=max(1, int(2 * self.max_messages_per_s)),
            images=self.max_images,
            image_pixels=max(1, int(self.max_image_megapixels * 1e6)),
            output_bytes=max(1024, int(self.max_output_mb * MEBIBYTE)),
            picture_bytes=int(self.max_kept_pictures_mb * MEBIBYTE),
        )

    def open_verdict_log(self) -> VerdictLog | None:
        """What keeps the answers, or None. Raises VerdictLogError for a folder that cannot be written."""
        if not self.verdict_log:
            return None
        return VerdictLog(self.verdict_log, self.verdict_log_contents, int(self.verdict_log_mb * MEBIBYTE))
