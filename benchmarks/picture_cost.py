# SPDX-License-Identifier: Apache-2.0
"""What a prompt of eight frames adds to a decision: with all frames sent and encoded again, and with known ones kept.

    python -m benchmarks.picture_cost [--decisions 16] [--presets navila,navila_frames_last]

A verifier and an edge in this process decide on the frames of a recorded walk; each answer is compared with the
target's own. Prints medians over the decisions with a full history. Times cover the prompt only; edge and verifier
share the cores, and each has its own vision tower.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from pathlib import Path

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.work import Models
from cloud_verifier.loading import warm_up
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from spec_vlm_nav.camera.images import PictureOptions, black_like, prepare
from spec_vlm_nav.common.errors import NavigationError
from spec_vlm_nav.language.prompting import PromptSpec, build_prompt, choose_frames
from specdec.drafting.memory import KEPT_BYTES
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import SpecdecError
from specdec.models import LoadedModel, Prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.bags.contents import choose_image_topic, pictures
from specnav.bags.source import open_bag
from specnav.bags.types import Types
from specnav.paths import DEFAULT_DRAFT, DEFAULT_TARGET
from specnav.results.errors import EvaluationError

BAG = Path(__file__).resolve().parents[1] / "tests/data/rooms.mcap"
OPTIONS = GenerationOptions(12)
SHARED_BYTES = 256 << 20
WORDS = "walk to the red ball and stop in front of it"


@dataclass(frozen=True)
class Cost:
    """The figures of one decision; times in milliseconds. edge_tokens: prompt tokens that the edge fed to its model."""

    bytes_up: float
    edge_vision_ms: float
    cloud_vision_ms: float
    edge_prefill_ms: float
    cloud_prefill_ms: float
    edge_tokens: float


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description="What a prompt of eight frames adds to a decision.")
    parser.add_argument("--target", default=str(DEFAULT_TARGET))
    parser.add_argument("--draft", default=str(DEFAULT_DRAFT))
    parser.add_argument("--bag", type=Path, default=BAG, help="recording with the frames")
    parser.add_argument("--size", default="224x140", help="frame size in pixels")
    parser.add_argument("--decisions", type=int, default=16, help="number of decisions with a full history")
    parser.add_argument("--presets", default="navila,navila_frames_last")
    given = parser.parse_args()
    try:
        width, height = (int(number) for number in given.size.split("x"))
        target, draft = load_model(given.target), load_model(given.draft)
        for model in (target, draft):
            warm_up(model)
        print(f"{'':38}{'B up':>8}{'vision ms':>18}{'prefill ms':>18}{'tokens fed':>12}")
        print(f"{'':38}{'':8}{'edge':>9}{'cloud':>9}{'edge':>9}{'cloud':>9}{'edge':>12}")
        for name in given.presets.split(","):
            spec = PromptSpec.preset(name)
            first = spec.history_frames + 1
            frames = list(islice(read_frames(given.bag, width, height), first + given.decisions))
            if len(frames) <= first:
                raise EvaluationError(f"{given.bag} has too few frames: {len(frames)}")
            prompts = list(ask(spec, draft, frames))
            before = decide(target, draft, prompts, first, keep=False)
            after = decide(target, draft, prompts, first, keep=True)
            show(f"{name}: nothing kept", before)
            show(f"{name}: kept on both sides", after)
            show("  kept / not kept", [ratio(before, after)], digits=2)
    except (SpecdecError, NavigationError, EvaluationError, ValueError) as error:
        print(f"picture_cost: error: {error}", file=sys.stderr)
        return 1
    return 0


def read_frames(bag: Path, width: int, height: int) -> Iterator[bytes]:
    """The bag's frames in order, as the robot sends them."""
    opened = open_bag(bag)
    topic = choose_image_topic(opened, None)
    for _, picture in pictures(opened, Types({}), topic, range(topic.count)):
        if isinstance(picture, bytes):
            yield prepare(picture, PictureOptions(width, height))


def ask(spec: PromptSpec, model: LoadedModel, frames: Sequence[bytes]) -> Iterator[Prompt]:
    """The prompt of each decision: the earlier frames and a new one."""
    for number, frame in enumerate(frames):
        shown = choose_frames(spec, frames[:number], frame, black_like(frame))
        yield build_prompt(spec, model.tokenizer, WORDS, shown)


def decide(
    target: LoadedModel, draft: LoadedModel, prompts: Sequence[Prompt], first: int, keep: bool
) -> list[Cost]:
    """The figures of the decisions from `first` on. Raises SpecdecError if an answer is not the target's own."""
    config = ServerConfig(target.path, "tcp://127.0.0.1:0", max_kept_pictures_mb=16 if keep else 0)
    make_engine = own_engine(config.policy, Models(target), shared_bytes=SHARED_BYTES if keep else 0)
    server = Server(config, target, EventLog(StringIO()), make_engine)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    room = server._engine.prompts.pictures
    costs: list[Cost] = []
    try:
        with connect(server.bind, reply_timeout_s=30) as link:
            decoder = EdgeDecoder(link, draft, "sd", keep_bytes=KEPT_BYTES if keep else 0)
            memory = decoder.memory
            assert memory is not None
            for prompt in prompts:
                before = memory.vision_s, room.vision_s, memory.taken_over
                ids = [token for chunk in decoder.generate(prompt, OPTIONS) for token in chunk]
                if ids != generate_local(target, prompt, OPTIONS):
                    raise SpecdecError("an answer is not the target's own: report this as a bug")
                stats = decoder.stats
                costs.append(
                    Cost(
                        stats.prompt_bytes,
                        1e3 * (memory.vision_s - before[0]),
                        1e3 * (room.vision_s - before[1]),
                        stats.prefill_ms,
                        stats.cloud_prefill_ms,
                        draft.prompt_length(prompt) - (memory.taken_over - before[2]),
                    )
                )
    finally:
        server.stop()
        thread.join(10)
    return costs[first:]


def ratio(before: Sequence[Cost], after: Sequence[Cost]) -> Cost:
    """Each median of `after` as a fraction of that of `before`."""
    return Cost(*(median(after, name) / median(before, name) for name in Cost.__annotations__))


def median(costs: Sequence[Cost], name: str) -> float:
    """The median of one figure."""
    return statistics.median(getattr(cost, name) for cost in costs)


def show(label: str, costs: Sequence[Cost], digits: int = 1) -> None:
    """One line."""
    widths = (8, 9, 9, 9, 9, 12)
    shown = [
        digits if name not in ("bytes_up", "edge_tokens") or digits > 1 else 0
        for name in Cost.__annotations__
    ]
    values = [median(costs, name) for name in Cost.__annotations__]
    cells = zip(values, widths, shown, strict=True)
    print(f"{label:38}" + "".join(f"{value:>{width}.{digit}f}" for value, width, digit in cells))


if __name__ == "__main__":
    sys.exit(main())
