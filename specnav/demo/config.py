# SPDX-License-Identifier: Apache-2.0
"""Settings of a demo run, checked on creation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from cloud_verifier.config import ServerConfig
from specdec.errors import SpecdecError
from specdec.link.shaping import LinkProfile
from specdec.models.gguf.files import check_options
from specdec.models.gguf.options import GgufOptions
from specdec.options import DecodingOptions, GenerationOptions, ModelOptions
from specdec.settings import check_settings, same_as, setting
from specnav.demo.errors import DemoError
from specnav.edge_settings import EdgeSettings
from specnav.paths import CONFIG, DEFAULT_DRAFT, DEFAULT_TARGET

EXPLORATIONS = ("auto", "frontier_search", "none")
SPLITS = ("heldout", "train")


@dataclass(frozen=True)
class PageConfig:
    """Settings of the page of `specnav demo --console`, where a person instructs the simulated robot."""

    console: bool = setting(
        False, "Instead of episodes, open a web page where you tell the robot what to do."
    )
    port: int = setting(8765, "With --console: the page's port (0: a free one).", 0, 65_535)
    host: str = setting(
        "127.0.0.1",
        "With --console: the page's address. Use one beyond loopback only in a container whose port is published on "
        "this machine alone: anyone who reaches it can move the simulated robot.",
    )
    connect: str = same_as(
        EdgeSettings,
        "connect",
        default="",
        help="With --console: use a verifier that runs elsewhere.",
        shown="start one here",
    )

    def __post_init__(self) -> None:
        check_settings(self, DemoError)


@dataclass(frozen=True)
class DemoConfig:
    """Settings of a demo run. Raises DemoError, with the allowed values, for a wrong one."""

    episodes: int = setting(3, "Number of instructions to carry out.", 1, 10_000)
    # The room of seed 0 is an unusually hard one (docs/notebook/exploration.md), not one to start with.
    seed: int = same_as(
        GenerationOptions,
        "seed",
        default=1,
        help="Seed of the first episode; the next ones count up.",
        high=2**31 - 1,
    )
    method: str = same_as(
        DecodingOptions,
        "method",
        help="How answers are decoded: ar and cloud-sd decode in the cloud alone, the others draft on the robot. Any "
        "method of the robot's nodes, with axes (sd+length:token:0.7).",
    )
    out: Path | None = setting(None, "Folder of the run.", metavar="FOLDER", shown="runs/demo-<time>")
    split: str = setting("heldout", "Rooms: heldout (never trained on) or train.", choices=SPLITS)
    absent_share: float = setting(
        0.0, "Share of episodes whose target is not in the room.", 0, 1, metavar="SHARE"
    )
    max_decisions: int = setting(50, "Give up an episode after this many decisions.", 1, 1000)
    episode_timeout_s: float = setting(150.0, "Give up an episode after this long.", 1, 86_400, unit="s")
    max_new_tokens: int = same_as(GenerationOptions, "max_new_tokens", default=96, low=8, high=1024)
    gamma: int = same_as(DecodingOptions, "gamma")
    temperature: float = same_as(GenerationOptions, "temperature", high=2)
    exploration: str = setting(
        "auto",
        "Exploration policy; none: the model alone decides, auto: the policy that the model was made for.",
        choices=EXPLORATIONS,
    )
    rtt_ms: float = same_as(LinkProfile, "rtt_ms")
    jitter_ms: float = same_as(LinkProfile, "jitter_ms")
    bandwidth_mbps: float = same_as(LinkProfile, "bandwidth_mbps")
    loss: float = same_as(LinkProfile, "loss")
    verify_ms: float = same_as(ServerConfig, "verify_ms")
    target_model: str = same_as(
        EdgeSettings, "target_model", default=str(DEFAULT_TARGET), shown="the shipped one"
    )
    draft_model: str = same_as(
        EdgeSettings, "draft_model", default=str(DEFAULT_DRAFT), shown="the shipped one"
    )
    gguf: str = same_as(ModelOptions, "gguf")
    headless: bool = setting(False, "Print plain log lines instead of a live view (CI).")
    latency_study: bool = setting(
        False, "Afterwards, compare ar, sd and fsd at round-trip times of 0, 40 and 120 ms."
    )
    study_decisions: int = setting(10, "Decisions for each cell of the latency study.", 2, 1000)
    compare_decisions: int = setting(
        40, "Most answers that are decoded again with the target alone; 0: none.", 0, 100_000
    )
    robot_config: Path = setting(CONFIG / "robot.yaml", "Parameters of the robot's nodes.")
    sim_config: Path = setting(CONFIG / "sim.yaml", "Parameters of the simulator.")
    cloud_config: Path = setting(CONFIG / "cloud.yaml", "Settings of the verifier.")
    start_timeout_s: float = setting(
        90.0, "Time for each process to become ready.", 1, 3600, unit="s"
    )

    def __post_init__(self) -> None:
        check_settings(self, DemoError)
        from spec_vlm_nav.model.decider import why_not_method

        if why_not := why_not_method(self.method):
            raise DemoError(f"method {self.method!r} cannot be used: {why_not}")
        try:
            check_options(self.draft_model, GgufOptions.read(self.gguf))
        except SpecdecError as error:
            raise DemoError(str(error)) from error

    def emulates(self, rtt_ms: float) -> bool:
        """Whether a link emulator runs between edge and cloud at this round-trip time."""
        return any((rtt_ms, self.jitter_ms, self.bandwidth_mbps, self.loss))

    def is_absent(self, index: int) -> bool:
        """Whether the target of episode `index` is absent; absences are spread evenly over the run."""
        return math.floor((index + 1) * self.absent_share) > math.floor(index * self.absent_share)
