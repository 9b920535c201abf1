# SPDX-License-Identifier: Apache-2.0
"""The settings of the server; checked once, before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cloud_verifier.engine.policy import Policy
from cloud_verifier.errors import VerifierError
from cloud_verifier.limits import MEBIBYTE, Limits
from specdec.link.binding import check_address, is_loopback
from specdec.models.gguf.options import GgufOptions
from specdec.options import ModelOptions
from specdec.row_ms import MAX_MS, read_ms
from specdec.settings import REQUIRED, check_settings, same_as, setting
from specdec.verdict_log import CONTENTS, MOST_BYTES, VerdictLog

NO_EXITS = "none"
SHARES = ("key", "all", "none")
ENGINES = ("own", "vllm", "llamacpp")
KV_TYPES = ("auto", "f16", "q8_0", "f32")
LOOKUP = "ngram"
"""For draft_model: no model; drafts are n-grams looked up in the text so far."""
PACING = "MS[:ROWS,...]"


@dataclass(frozen=True)
class ServerConfig:
    """Settings of one verifier: of `specnav serve`, `python -m cloud_verifier`, `specnav fleet up` and YAML alike."""

    model: str = setting(
        REQUIRED,
        "Target: a Hugging Face folder or hub id; with --engine llamacpp a GGUF file.",
        metavar="FOLDER|ID|FILE",
    )
    bind: str = setting(
        "tcp://127.0.0.1:5555", "Where to listen; port 0 takes a free one.", metavar="tcp://HOST:PORT"
    )
    engine: str = setting(
        "own",
        "What runs the target; vllm needs make setup-vllm, llamacpp (for GGUF files) needs make setup-gguf.",
        choices=ENGINES,
    )
    tensor_parallel: int = setting(
        1, "GPUs of one machine that share the target; with --engine vllm.", 1, 64, metavar="K"
    )
    gpu_layers: int = setting(
        -1, "Layers of the target on a GPU; -1: all, if there is a GPU; with --engine llamacpp.", -1, 1000, metavar="N"
    )
    kv_type: str = setting(
        "auto",
        "Number type of keys and values, with --engine llamacpp; auto: q8_0 on a CPU, where a lone session "
        "is then exact, else f16.",
        choices=KV_TYPES,
    )
    device: str = same_as(ModelOptions, "device")
    dtype: str = same_as(ModelOptions, "dtype")
    quantize: str = same_as(ModelOptions, "quantize")
    pixels: int = same_as(ModelOptions, "pixels")
    draft_model: str = setting(
        "",
        "Draft for methods that draft in the cloud: a folder, hub id or GGUF file; ngram: no model, n-grams are "
        "looked up in the text so far.",
        metavar="FOLDER|ID|FILE",
    )
    gguf: str = same_as(ModelOptions, "gguf")
    draft_disturbed: str = setting(
        "",
        "Disturb the logits of --draft-model, to stand in for a weaker draft (specnav bench run --acceptance).",
        metavar="STRENGTH:SEED",
    )
    threads: int = setting(
        0,
        "CPU threads of a forward pass; 0: one for a model under 100M parameters on a CPU, otherwise torch's choice.",
        0,
        1024,
    )
    max_sessions: int = setting(
        64, "Sessions of all clients together; further ones are refused as busy.", 1, 100_000
    )
    session_timeout_s: float = setting(
        120.0,
        "A session without messages for this long is forgotten; its edge opens it again with its history.",
        0.1,
        86_400,
        unit="s",
        flags=("--session-timeout", "--session-timeout-s"),
    )
    max_message_mb: float = setting(
        32.0,
        "Longer messages are refused unread, and the limit is reported; above 65 MB ZeroMQ disconnects.",
        0.001,
        64,
        unit="MB",
    )
    verify_ms: float = setting(
        0.0,
        "Minimum time of every forward pass, to stand in for a larger model; by its rows: 72:1,90:4.",
        0,
        MAX_MS,
        unit="ms",
        metavar=PACING,
        read=read_ms,
    )
    draft_ms: float = setting(
        0.0, "Like --verify-ms, for --draft-model.", 0, MAX_MS, unit="ms", metavar=PACING, read=read_ms
    )
    exits: str = same_as(ModelOptions, "exits")
    exit_layers: str = same_as(ModelOptions, "exit_layers")
    max_client_sessions: int = same_as(Limits, "sessions")
    max_queued_mb: float = setting(
        Limits.queued_bytes / MEBIBYTE,
        "Size of one client's messages that wait for the engine; one message alone may be larger.",
        0.001,
        100_000,
        unit="MB",
    )
    max_total_queued_mb: float = setting(
        256.0, "Like --max-queued-mb, for all clients together.", 0.001, 100_000, unit="MB"
    )
    max_queued_forwards: int = same_as(Limits, "queued_forwards")
    max_draft_nodes: int = same_as(Limits, "draft_nodes")
    max_messages_per_s: float = same_as(Limits, "messages_per_s", high=1_000_000)
    max_images: int = same_as(Limits, "images")
    max_image_megapixels: float = setting(
        Limits.image_pixels / 1e6, "Size of all images of a prompt together, by their headers.", 0.001, 2000
    )
    max_output_mb: float = setting(
        Limits.output_bytes / MEBIBYTE,
        "Replies that a client has not read, besides what ZeroMQ and the system buffer; above this its sessions "
        "pause until it has read.",
        0.001,
        100_000,
        unit="MB",
    )
    max_kept_pictures_mb: float = setting(
        Limits.picture_bytes / MEBIBYTE,
        "Pictures kept per client, so that it can name them instead of sending them again; 0: none.",
        0,
        100_000,
        unit="MB",
    )
    max_total_kept_pictures_mb: float = setting(
        256.0, "Like --max-kept-pictures-mb, for all clients together.", 0, 100_000, unit="MB"
    )
    keys: str = setting(
        "",
        "Keys of the clients that may connect, encrypted (specnav keys). Without keys only loopback is served.",
        metavar="FOLDER",
    )
    deterministic: bool = same_as(ModelOptions, "deterministic")
    compile: bool = same_as(ModelOptions, "compile")
    insecure: bool = setting(False, "Serve without keys although other machines can reach the address.")
    log_contents: bool = setting(False, "Let the log quote prompts and answers, to find an error.")
    kv_gb: float = setting(
        0.0, "Memory for the KV caches of all sessions.", 0, 100_000, unit="GB", shown="half of what is free"
    )
    share: str = setting(
        "key",
        "Who shares the caches of equal prompts and pictures: key (sessions of one key; without keys all clients), "
        "all, or none. The time that a prompt takes reveals whether another session that shares has sent it before.",
        choices=SHARES,
    )
    shared_mb: float = setting(
        0.0,
        "Memory for shared prompts and pictures that no open session uses, as long as sessions leave room for it.",
        0,
        100_000_000,
        unit="MB",
        shown="an eighth of --kv-gb, at most 16,384 tokens",
    )
    forward_rows: int = same_as(Policy, "rows")
    forward_latency_ms: float = same_as(Policy, "latency_ms")
    prompt_rows: int = same_as(Policy, "chunk")
    groups: int = same_as(Policy, "groups")
    drain_s: float = setting(
        5.0, "After SIGTERM, answers in flight may take this long to end.", 0, 3600, unit="s"
    )
    verdict_log: str = setting(
        "", "Record the target's answers there, to train a draft on.", metavar="FOLDER"
    )
    verdict_log_contents: str = setting(
        "tokens",
        "What the verdict log holds: tokens, prompts (with tokens), or pictures (with both).",
        choices=CONTENTS,
    )
    verdict_log_mb: float = setting(
        MOST_BYTES / MEBIBYTE,
        "Size of the verdict log; above it the oldest part is deleted.",
        1,
        1_000_000,
        unit="MB",
    )
    energy_root: str = setting(
        "/sys", "Where sysfs lies, for energy sensors on /metrics; none: no sensor is read.", metavar="FOLDER|none"
    )
    metrics: str = setting(
        "", "Serve /metrics (Prometheus, specnav top), /healthz and /readyz there.", metavar="HOST:PORT"
    )

    def __post_init__(self) -> None:
        check_settings(self, VerifierError)
        if not self.model:
            raise VerifierError("no model given: name a Hugging Face folder or hub id")
        check_address(self.bind, "bind address", VerifierError, schemes=("tcp://",), bind=True)
        if self.keys and self.insecure:
            raise VerifierError("keys and insecure exclude each other: leave one of them out")
        if not self.keys and not self.insecure and not is_loopback(self.bind):
            raise VerifierError(
                f"{self.bind} is open to other machines and there are no keys: give --keys FOLDER (specnav keys new "
                "NAME makes one), or say --insecure if every host may listen in and use it"
            )
        if self.metrics:
            check_address(self.metrics, "metrics", VerifierError, schemes=("",), bind=True)
        if self.draft_disturbed and self.draft_model in ("", LOOKUP):
            raise VerifierError("draft_disturbed needs a draft model: name one with draft_model, or leave it out")
        GgufOptions.read(self.gguf)
        if self.gguf and self.draft_model in ("", LOOKUP):
            raise VerifierError("gguf needs a GGUF draft: name one with draft_model, or leave it out")
        if self.energy_root not in (ServerConfig.energy_root, "none") and not Path(self.energy_root).is_dir():
            raise VerifierError(f"energy_root must be a folder or none, got {self.energy_root!r}")
        if self.verdict_log and self.engine == "vllm":
            raise VerifierError("the engine vllm keeps no verdict log: leave verdict_log out")
        for name in ("gpu_layers", "kv_type"):
            if getattr(self, name) != getattr(ServerConfig, name) and self.engine != "llamacpp":
                raise VerifierError(f"{name} is for the engine llamacpp: leave it out, or serve with --engine llamacpp")
        if self.tensor_parallel > 1 and self.engine != "vllm":
            raise VerifierError(
                f"tensor_parallel = {self.tensor_parallel} is for the engine vllm: our own keeps a model on one GPU; "
                "leave it out, or serve with --engine vllm"
            )

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
        """Bounds on a client whose key file sets none."""
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
        """The configured verdict log, or None. Raises VerdictLogError if its folder is not writable."""
        if not self.verdict_log:
            return None
        return VerdictLog(self.verdict_log, self.verdict_log_contents, int(self.verdict_log_mb * MEBIBYTE))


def refuse_settings(engine: str, given: Mapping[str, bool]) -> None:
    """Raise VerifierError for settings that an engine ignores. given: by flag, whether it was set."""
    if named := [flag for flag, is_set in given.items() if is_set]:
        raise VerifierError(
            f"the engine {engine} does not take {', '.join(named)}: leave them out, or serve with --engine own"
        )
