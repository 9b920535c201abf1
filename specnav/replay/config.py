# SPDX-License-Identifier: Apache-2.0
"""Settings of a replay, checked on creation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec.link.binding import check_address
from specdec.options import DecodingOptions, GenerationOptions, ModelOptions
from specdec.settings import REQUIRED, check_settings, same_as, setting, words
from specnav.edge_settings import EdgeSettings
from specnav.errors import UsageError
from specnav.paths import CONFIG, DEFAULT_DRAFT, DEFAULT_TARGET

if TYPE_CHECKING:
    from spec_vlm_nav.camera.images import PictureOptions

RATES = ("frames", "bag")


@dataclass(frozen=True)
class ReplayConfig:
    """Settings of a replay. Raises UsageError with the allowed range for a wrong value.

    rate: "frames" decides frame after frame, every method in turn; "bag" plays the frames at the bag's own speed, one
    pass per method, and takes the newest frame whenever a decision is done, as the robot does. every: decide one in
    this many frames; frames with a reference are always decided. connect: a running verifier; None: start one. key:
    this edge's key, for a running verifier that requires keys. prompt, answer_grammar: as the robot's parameters of
    these names. robot_config: the robot's picture settings are read from this file.
    """

    bag: Path = setting(
        REQUIRED, "A rosbag2 folder, or an .mcap or .db3 file.", metavar="BAG", positional=True
    )
    image_topic: str | None = setting(None, "Topic of the camera.", shown="the only image topic in the bag")
    instruction: str | None = setting(None, "Instruction for the robot.", shown="as recorded in the bag")
    methods: tuple[str, ...] = setting(
        ("fsd",),
        "Methods to compare: fsd,ar,sd ...",
        metavar="A,B,...",
        flags=("--methods", "--method"),
        read=words,
    )
    labels: Path | None = setting(
        None,
        "Correct actions to score against, instead of the recorded ones: columns stamp,action.",
        metavar="CSV",
    )
    rate: str = setting(
        "frames",
        "frames: frame after frame, as fast as possible; bag: at the bag's own speed, as the robot does.",
        choices=RATES,
    )
    every: int = setting(1, "Decide only every N-th frame, and those with a reference.", 1, 1_000_000, metavar="N")
    limit: int | None = setting(None, "Most frames to decide.", 1, 10_000_000, metavar="N", shown="all")
    compare: Path | None = setting(None, "Folder of an earlier replay to compare with.", metavar="RUN")
    out: Path | None = setting(None, "Folder of the report.", metavar="FOLDER", shown="runs/replay-<time>")
    gamma: int = same_as(DecodingOptions, "gamma")
    temperature: float = same_as(GenerationOptions, "temperature", high=2)
    seed: int = same_as(GenerationOptions, "seed", high=2**31 - 1)
    max_new_tokens: int = same_as(GenerationOptions, "max_new_tokens", default=96, low=8, high=1024)
    connect: str | None = same_as(EdgeSettings, "connect")
    key: Path | None = same_as(EdgeSettings, "key")
    target_model: str = same_as(
        EdgeSettings, "target_model", default=str(DEFAULT_TARGET), shown="the shipped one"
    )
    draft_model: str = same_as(
        EdgeSettings, "draft_model", default=str(DEFAULT_DRAFT), shown="the shipped one"
    )
    gguf: str = same_as(ModelOptions, "gguf")
    exits: str = same_as(ModelOptions, "exits")
    exit_layers: str = same_as(ModelOptions, "exit_layers")
    quantize: str = same_as(ModelOptions, "quantize")
    device: str = same_as(ModelOptions, "device")
    prompt: str = setting("auto", "Prompt preset; auto: the one in the draft model's folder.", metavar="NAME")
    answer_grammar: str = setting(
        "off", "off, or actions: every answer ends in an action sentence.", metavar="off|actions"
    )
    robot_config: Path = setting(
        CONFIG / "robot.yaml",
        "The robot's parameter file, for the size of its pictures.",
        metavar="FILE",
        shown="config/robot.yaml",
    )

    def __post_init__(self) -> None:
        from spec_vlm_nav.model.decider import ANSWER_GRAMMARS

        check_settings(self, UsageError)
        if self.answer_grammar not in ANSWER_GRAMMARS:
            raise UsageError(
                f"--answer-grammar {self.answer_grammar!r} is unknown; choose one of {', '.join(ANSWER_GRAMMARS)}"
            )
        if self.connect is not None:
            check_address(self.connect, "--connect", UsageError)
        if self.key is not None and self.connect is None:
            raise UsageError("--key is for a verifier that runs elsewhere: give its address with --connect")
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise UsageError("--methods must name each method once, like fsd,ar")
        if self.instruction is not None and not self.instruction.strip():
            raise UsageError(
                "--instruction is empty; say what the robot should do, like 'find the blue lamp'"
            )

    def picture(self) -> PictureOptions:
        """How the robot scales and compresses a camera picture. Raises UsageError."""
        from spec_vlm_nav.camera.images import PictureOptions
        from spec_vlm_nav.deciding.parameters import VLM_NAV
        from spec_vlm_nav.parameters.files import all_said_in
        from specnav.settings import read_yaml

        names = {
            "image_width": "width",
            "image_height": "height",
            "jpeg_quality": "quality",
            "pixels": "pixels",
        }
        defaults = {parameter.name: parameter.default for parameter in VLM_NAV}
        read_yaml(self.robot_config)  # reports an invalid file
        found = {**defaults, **all_said_in([self.robot_config], "vlm_nav_node")}
        given: dict[str, Any] = {ours: found[theirs] for theirs, ours in names.items()}
        if not all(isinstance(value, int) and value >= 0 for value in given.values()):
            raise UsageError(f"{self.robot_config}: {', '.join(names)} must be whole numbers")
        return PictureOptions(**given)
