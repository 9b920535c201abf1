# SPDX-License-Identifier: Apache-2.0
"""The results of `specnav doctor --gpu`, in the shape of its JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

VERIFY_TARGET = 1.3
"""Goal: a verification takes at most this many times the floor."""
EXITS_TARGET = 0.05
"""Goal: exits take at most this share of a forward pass."""
PLANNING, LAUNCHING, SERVING = 1.3, 1.7, 1.3
"""Ratios above which a cause is named: first over later answers, a token over the floor, a served token over a
bare one.
"""


@dataclass(frozen=True)
class Device:
    """total_bytes, free_bytes: its memory before anything was loaded."""

    name: str
    kind: str
    total_bytes: int
    free_bytes: int
    torch: str
    threads: int


@dataclass(frozen=True)
class ForwardTime:
    """A forward pass over `rows` rows after `context` tokens. floor_ms: time to read the weights and the cache once at
    the measured bandwidth.
    """

    rows: int
    context: int
    ms: float
    floor_ms: float

    @property
    def over_floor(self) -> float:
        """The time as a multiple of the floor."""
        return self.ms / max(self.floor_ms, 1e-9)


@dataclass(frozen=True)
class Growing:
    """Greedy decoding after `context` tokens, one more token per forward pass. Milliseconds per token.

    first_ms: at lengths that this process meets for the first time; later_ms: at the same lengths again; served_ms:
    between two tokens sent by the verifier's engine; floor_ms: to read weights and cache once.
    """

    context: int
    first_ms: float
    later_ms: float
    served_ms: float
    floor_ms: float

    @property
    def bottleneck(self) -> str:
        """The reason why a token takes longer than the floor."""
        if self.first_ms > PLANNING * self.later_ms:
            return "planning per length"
        if self.later_ms > LAUNCHING * self.floor_ms:
            return "launch-bound"
        if self.served_ms > SERVING * self.later_ms:
            return "work between forwards"
        return "at the floor"


@dataclass(frozen=True)
class Flips:
    """Picks that differ between row-by-row and joint computation. noise: largest difference between logits of the same
    position; margin: largest logit difference between two differing picks.
    """

    positions: int
    picks: int
    noise: float
    margin: float

    @property
    def sound(self) -> bool:
        """Whether all flips are near-ties: a margin above twice the noise is an error."""
        return self.margin <= 2 * self.noise


@dataclass(frozen=True)
class ExitsCost:
    """A verification with and without hints of early exits. layers: those with an exit."""

    layers: tuple[int, ...]
    without_ms: float
    with_ms: float

    @property
    def cost(self) -> float:
        """Added time as a share of a verification."""
        return self.with_ms / self.without_ms - 1


@dataclass(frozen=True)
class Vision:
    """A picture: its tokens, the time to prepare it on the CPU, and the time of the vision tower."""

    width: int
    height: int
    tokens: int
    prepare_ms: float
    tower_ms: float


@dataclass(frozen=True)
class ModelFindings:
    """One model, loaded in one variant: "float32", "bfloat16", "8bit" and the like.

    planned_bytes: weights according to its configuration, before loading; loaded_bytes: actual weights. read_bytes:
    weights read in one forward pass; bandwidth: measured bytes per second for that size. launches: operations of a
    forward pass of one row. verify_reads, draft_reads: how often the program waits for values while it verifies a chain
    and drafts one. error: why it was not measured.
    """

    model: str
    role: str
    variant: str
    planned_bytes: int = 0
    loaded_bytes: int = 0
    load_s: float = 0.0
    read_bytes: int = 0
    bandwidth: float = 0.0
    forwards: tuple[ForwardTime, ...] = ()
    launches: int = 0
    verify_reads: int = 0
    draft_reads: int = 0
    flips: Flips | None = None
    exits: ExitsCost | None = None
    vision: Vision | None = None
    growing: Growing | None = None
    error: str = ""


@dataclass(frozen=True)
class AutoChoice:
    """The choice of `auto` at a round-trip time, and the reason."""

    rtt_ms: float
    plan: str
    why: str


@dataclass(frozen=True)
class GpuFindings:
    """All results. agreement: share of the target's tokens, in its own answers, that the draft model picks too; None if
    they cannot be a pair.
    """

    device: Device
    gamma: int
    models: tuple[ModelFindings, ...] = ()
    agreement: float | None = None
    auto: tuple[AutoChoice, ...] = ()
    notes: tuple[str, ...] = field(default=())
