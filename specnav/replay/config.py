"""What a replay is asked to do: one frozen record, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec_vlm_nav.camera.images import PictureOptions
from spec_vlm_nav.deciding.parameters import VLM_NAV
from spec_vlm_nav.model.decider import ANSWER_GRAMMARS
from specnav.errors import UsageError
from specnav.paths import CONFIG, DEFAULT_DRAFT, DEFAULT_TARGET
from specnav.settings import read_yaml

RATES = ("frames", "bag")
_LIMITS: dict[str, tuple[float, float]] = {
    "every": (1, 1_000_000),
    "limit": (1, 10_000_000),
    "max_new_tokens": (8, 1024),
    "gamma": (1, 32),
    "temperature": (0, 2),
    "seed": (0, 2**31 - 1),
    "verify_ms": (0, 60_000),
}


@dataclass(frozen=True)
class ReplayConfig:
    """Settings of a replay; a wrong value is refused with the allowed range (UsageError).

    rate: "frames" decides frame after frame, every method in turn; "bag" lets the frames come at the bag's own speed, a
    pass a method, and takes the newest one whenever a decision is done, as the robot does. every: of frames without a
    reference, one in so many is decided; those with one always are. connect: a running verifier; None: one is started.
    key: of this edge, for a running verifier with keys.
    prompt, answer_grammar: as the robot's parameters of that name; robot_config: what the robot does to a picture is
    taken from there.
    """

    bag: Path
    image_topic: str | None = None
    instruction: str | None = None
    methods: tuple[str, ...] = ("fsd",)
    labels: Path | None = None
    rate: str = "frames"
    every: int = 1
    limit: int | None = None
    compare: Path | None = None
    out: Path | None = None
    gamma: int = 4
    temperature: float = 0.0
    seed: int = 0
    max_new_tokens: int = 96
    connect: str | None = None
    key: Path | None = None
    target_model: str = str(DEFAULT_TARGET)
    draft_model: str = str(DEFAULT_DRAFT)
    gguf: str = ""
    exits: str = ""
    exit_layers: str = "auto"
    quantize: str = "none"
    device: str = "auto"
    prompt: str = "auto"
    answer_grammar: str = "off"
    robot_config: Path = CONFIG / "robot.yaml"

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name, None)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise UsageError(f"{name} is {value!r}; give a number from {low:g} to {high:g}")
        if self.answer_grammar not in ANSWER_GRAMMARS:
            raise UsageError(
                f"--answer-grammar {self.answer_grammar!r} is unknown; choose one of {', '.join(ANSWER_GRAMMARS)}"
            )
        if self.rate not in RATES:
            raise UsageError(f"--rate {self.rate!r} is unknown; choose one of {', '.join(RATES)}")
        if self.key is not None and self.connect is None:
            raise UsageError("--key is for a verifier that runs elsewhere: name it with --connect")
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise UsageError("--methods names each method once, like fsd,ar")
        if self.instruction is not None and not self.instruction.strip():
            raise UsageError("--instruction is empty; say what the robot is to do, like 'find the blue lamp'")

    def picture(self) -> PictureOptions:
        """What the robot makes of a camera picture. Raises UsageError."""
        names = {
            "image_width": "width",
            "image_height": "height",
            "jpeg_quality": "quality",
            "pixels": "pixels",
        }
        defaults = {parameter.name: parameter.default for parameter in VLM_NAV}
        found = {**defaults, **parameters_of(self.robot_config, "vlm_nav_node")}
        given: dict[str, Any] = {ours: found[theirs] for theirs, ours in names.items()}
        if not all(isinstance(value, int) and value >= 0 for value in given.values()):
            raise UsageError(f"{self.robot_config}: {', '.join(names)} are whole numbers")
        return PictureOptions(**given)


def parameters_of(path: Path, node: str) -> dict[str, Any]:
    """A node's parameters in a ROS parameter file; {} when it has none. Raises UsageError."""
    for name, section in read_yaml(path).items():
        if str(name).rpartition("/")[2] == node and isinstance(section, dict):
            parameters = section.get("ros__parameters")
            return parameters if isinstance(parameters, dict) else {}
    return {}
