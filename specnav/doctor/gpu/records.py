# SPDX-License-Identifier: Apache-2.0
"""What `specnav doctor --gpu` finds, as it stands in its JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

VERIFY_TARGET = 1.3
"""Times the floor that a verification should take at most."""
EXITS_TARGET = 0.05
"""Part of a forward that exits should take at most."""
PLANNING, LAUNCHING, SERVING = 1.3, 1.7, 1.3
"""Of first answers over later ones, a token over the floor, a served token over a bare one: above, it is the cause."""


@dataclass(frozen=True)
class Device:
    """total_bytes, free_bytes: of its memory before anything was loaded."""

    name: str
    kind: str
    total_bytes: int
    free_bytes: int
    torch: str
    threads: int


@dataclass(frozen=True)
class ForwardTime:
    """One forward over n rows behind m tokens. floor_ms: the time to read the weights and the cache once, at
    the bandwidth that was measured.
    """

    rows: int
    context: int
    ms: float
    floor_ms: float

    @property
    def over_floor(self) -> float:
        """Times the floor."""
        return self.ms / max(self.floor_ms, 1e-9)


@dataclass(frozen=True)
class Growing:
    """Greedy decoding behind `context` tokens, each forward one token longer than the last. Milliseconds per token.

    first_ms: on lengths that this process meets for the first time; later_ms: on the same lengths again; served_ms:
    between two tokens that the verifier's engine sends; floor_ms: to read weights and cache once.
    """

    context: int
    first_ms: float
    later_ms: float
    served_ms: float
    floor_ms: float

    @property
    def bottleneck(self) -> str:
        """What keeps a token from the floor."""
        if self.first_ms > PLANNING * self.later_ms:
            return "planning per length"
        if self.later_ms > LAUNCHING * self.floor_ms:
            return "launch-bound"
        if self.served_ms > SERVING * self.later_ms:
            return "work between forwards"
        return "at the floor"


@dataclass(frozen=True)
class Flips:
    """Picks that are others when rows come one by one and when they come together. noise: by how much logits of the
    same positions differ at most; margin: the largest by which one pick won over the other.
    """

    positions: int
    picks: int
    noise: float
    margin: float

    @property
    def sound(self) -> bool:
        """Whether all of them are near-ties: a margin above twice the noise is an error."""
        return self.margin <= 2 * self.noise


@dataclass(frozen=True)
class ExitsCost:
    """A verification without and with hints of early exits. layers: those with an exit."""

    layers: tuple[int, ...]
    without_ms: float
    with_ms: float

    @property
    def cost(self) -> float:
        """Part of a verification."""
        return self.with_ms / self.without_ms - 1


@dataclass(frozen=True)
class Vision:
    """A picture of this many pixels: the tokens it becomes, preparing it on the CPU, and the vision tower's pass."""

    width: int
    height: int
    tokens: int
    prepare_ms: float
    tower_ms: float


@dataclass(frozen=True)
class ModelFindings:
    """One model, loaded one way. variant: "float32", "bfloat16", "8bit" and the like.

    planned_bytes: of weights, from its configuration, before loading; loaded_bytes: what its numbers take. read_bytes:
    of weights, in one forward; bandwidth: bytes a second of as many bytes. launches: operations of a forward of one
    row. verify_reads, draft_reads: how often the program waits for numbers in a verification of a chain and in a draft
    of one. error: why it was not measured.
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
    """What `auto` would do at a round trip, and why."""

    rtt_ms: float
    plan: str
    why: str


@dataclass(frozen=True)
class GpuFindings:
    """All of it. agreement: how often the draft model picks what the target said, over the target's own answers; None
    where they cannot be a pair.
    """

    device: Device
    gamma: int
    models: tuple[ModelFindings, ...] = ()
    agreement: float | None = None
    auto: tuple[AutoChoice, ...] = ()
    notes: tuple[str, ...] = field(default=())
