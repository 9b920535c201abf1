# SPDX-License-Identifier: Apache-2.0
"""Settings of `specnav train draft`; nothing is loaded to read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from specdec.options import DecodingOptions
from specdec.settings import REQUIRED, check_settings, same_as, setting
from specnav.edge_settings import EdgeSettings
from specnav.recipes.errors import TrainingError
from specnav.recipes.settings import TrainingSettings

LAYERS = "layers:"
"""Begins a draft that is made of layers of its target, like layers:0-2,7."""


@dataclass(frozen=True)
class Sources:
    """The requested data; if everything is empty, the default data are used."""

    questions: tuple[Path, ...] = setting(
        (), "A .jsonl file of questions, or a text file with one per line; may be repeated."
    )
    texts: tuple[Path, ...] = setting(
        (), "A text file, or a folder of them, to learn from and to continue.", flags=("--text",)
    )
    bags: tuple[Path, ...] = setting(
        (), "A rosbag2 folder, .mcap or .db3: its frames and instructions.", flags=("--bag",)
    )
    verdicts: tuple[Path, ...] = setting(
        (), "A folder written by serve or generate --verdict-log.", flags=("--verdict-log",)
    )
    held_out: tuple[Path, ...] = setting(
        (), "Questions used only for measuring.", flags=("--held-out-questions",), shown="some of those given"
    )
    instruction: str = setting("", "The instruction for bags without their own.")
    assistant: bool = setting(False, "Make up requests to a chat assistant, for a published instruct model.")
    self_asked: float = setting(
        0.0, "With --assistant: share of the requests that the target itself makes up.", 0, 1, metavar="X"
    )

    @property
    def named(self) -> bool:
        """Whether any data were given."""
        return bool(self.asks or self.verdicts)

    @property
    def asks(self) -> bool:
        """Whether any data were given that need a target's answers."""
        return bool(self.questions or self.texts or self.bags or self.assistant)


@dataclass(frozen=True)
class TrainDraftConfig:
    """Settings of `specnav train draft`. Without a target, its tokens are learnt, not its distributions."""

    draft: str = setting(
        REQUIRED, "Draft to start from: a folder or hub id, or layers of the target, like layers:0-2,7."
    )
    out: Path = setting(REQUIRED, "Folder for the draft, its card and its acceptance curve.")
    run: Path = setting(REQUIRED, "Folder for samples and checkpoints; the same folder continues a run.")
    target: str = setting(
        "",
        "Folder or hub id; it is not changed. Or give --connect, or only --verdict-log.",
        metavar="FOLDER|ID",
    )
    connect: str = same_as(
        EdgeSettings,
        "connect",
        default="",
        help="Ask a running verifier, tcp://HOST:PORT: the target's tokens are learnt, not its distributions.",
    )
    key: Path | None = same_as(EdgeSettings, "key")
    sources: Sources = field(default_factory=Sources)
    prompts: int = setting(4000, "Prompts to make up if no data are given.", 1, metavar="N")
    held_out: int = setting(64, "Prompts used only for measuring.", 1, metavar="N")
    gamma: int = same_as(DecodingOptions, "gamma", high=64, help="Draft length at which τ is measured.")
    length: int = setting(256, "Tokens of a row, prompt and answer.", 16, metavar="N")
    new_tokens: int = setting(128, "Tokens of an answer.", 1, metavar="N")
    steps: int = setting(2000, "Updates.", 1, metavar="N")
    minutes: float = same_as(
        TrainingSettings,
        "minutes",
        help="Shorten the updates to about this many minutes, beside the time for making data (see --prompts); 0: no "
        "limit.",
    )
    batch: int = setting(12, "Rows per update and process.", 1, metavar="N")
    lr: float = setting(2e-3, "Highest learning rate.", 1e-9, metavar="X")
    on_policy: float = setting(0.5, "Share of rows with the draft's own texts.", 0, 1, metavar="X")
    given_share: float = setting(0.25, "Share of rows with given texts.", 0, 1, metavar="X")
    reverse: float = setting(0.25, "Share of the reverse KL in the distance.", 0, 1, metavar="X")
    hard: float = setting(0.5, "Share of the target's likeliest token in the loss.", 0, 1, metavar="X")
    seed: int = same_as(TrainingSettings, "seed")
    workers: int = same_as(TrainingSettings, "workers")
    compile: bool = setting(True, "Let torch compile the training step.")
    share: bool = setting(False, "Store only the layers: embeddings, head and tokenizer stay the target's.")
    learn: str = setting(
        "",
        "With --share: only these layers of the target learn and are stored, like 2,7; the others stay as they are.",
        metavar="LAYERS",
    )
    tokens: int = same_as(TrainingSettings, "tokens")

    def __post_init__(self) -> None:
        check_settings(self, TrainingError)

    def samples(self, name: str) -> Path:
        """A file of samples in the run folder.

        prompts: for the target and for the draft's own texts. texts: the target's answers. given: texts to learn from
        as they are. held-out, held-out-sampled: the target's greedy and sampled texts, only for measuring. asked: the
        prompts of these. logged, logged-held-out: the target's logged answers, to learn from and only for measuring.
        """
        return self.run / f"{name}.jsonl"

    def check(self) -> None:
        """Raise TrainingError for values that cannot be combined."""
        if self.share and not self.target:
            raise TrainingError("--share needs the target's folder: give --target")
        if self.learn and not (self.share and self.draft.startswith(LAYERS)):
            raise TrainingError("--learn needs --share and layers of the target, like --draft layers:0-2,7")
        if self.target and self.connect:
            raise TrainingError("--target and --connect are two ways to ask a target: give one of them")
        if not self.target and self.draft.startswith(LAYERS):
            raise TrainingError(
                f"draft {self.draft}: layers can be taken only from a local target, given with --target"
            )
        if not self.target and not self.connect and (not self.sources.verdicts or self.sources.asks):
            raise TrainingError("no target is given: give --target, --connect, or only --verdict-log")
        if self.sources.self_asked and not (self.sources.assistant and self.target):
            raise TrainingError("--self-asked needs --assistant and a local target: give --target")
        if self.sources.held_out and not self.target and not self.connect:
            raise TrainingError(
                "--held-out-questions needs a target that answers them: give --target or --connect"
            )
        if self.key is not None and not self.connect:
            raise TrainingError("--key is for a verifier: give its address with --connect")
        if self.sources.instruction and not self.sources.bags:
            raise TrainingError("--instruction is for a bag without its own: give the bag with --bag")
        if self.new_tokens + 8 > self.length:
            raise TrainingError(
                f"length {self.length} leaves no room for a prompt before {self.new_tokens} new tokens"
            )
