# SPDX-License-Identifier: Apache-2.0
"""Records simulated episodes without ROS.

The target alone answers and the robot's executor moves. Messages are written as the robot's nodes and the simulator
would publish them. Time is simulated, so the same seeds give the same bag (except for differences between encoder
versions). Labels are written next to the bag: for each frame of a decision, the action of the oracle, which knows the
room.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from navsim.base import PlanarBase
from navsim.episodes import Episode, make_episode
from navsim.errors import BadRequest
from navsim.kinds import COLOURS, KIND_BY_NAME
from spec_vlm_nav.camera.images import pixels
from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, Pose
from spec_vlm_nav.exploring.floor_reading import FloorPicture
from spec_vlm_nav.exploring.moves import ActionSource, Move, Observation
from spec_vlm_nav.exploring.policy import ExplorationPolicy
from spec_vlm_nav.language.actions import Action, find_action, reasoning_of
from spec_vlm_nav.language.prompting import PromptSpec, build_prompt
from spec_vlm_nav.motion.executor import MotionExecutor
from specdec.models import LoadedModel
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.bags.types import Types
from specnav.bags.writing import McapFile
from specnav.recipes.frames import camera_jpeg
from specnav.recipes.rollouts import oracle_answer, simulated_body
from specnav.record.config import RecordConfig
from specnav.record.types import own_types
from specnav.results.files import write_bytes_atomic

if TYPE_CHECKING:
    from navsim.world import World

IMAGE, ODOM, CMD_VEL, INSTRUCTION = "/camera/image_raw/compressed", "/odom", "/cmd_vel", "/instruction"
REASONING, ACTION, METRICS = "/vlm_nav_node/reasoning", "/vlm_nav_node/action", "/vlm_nav_node/metrics"
COMMAND = "/motion_command"
OURS = "spec_vlm_nav_interfaces/msg/"
TOPICS = {
    IMAGE: "sensor_msgs/msg/CompressedImage",
    ODOM: "nav_msgs/msg/Odometry",
    CMD_VEL: "geometry_msgs/msg/Twist",
    INSTRUCTION: "std_msgs/msg/String",
    REASONING: "std_msgs/msg/String",
    ACTION: "std_msgs/msg/String",
    METRICS: f"{OURS}DecisionMetrics",
    COMMAND: f"{OURS}MotionCommand",
}
JPEG_QUALITY = 90
MAX_NEW_TOKENS, MAX_DECISIONS = 96, 30
TICK_S, ODOM_S, CAMERA_S = 0.02, 0.1, 1.0
THINK_S, PAUSE_S = 0.1, 0.5  # assumed time of a decision; pause between episodes
START_NS = 1_800_000_000_000_000_000
SESSION = 1


@dataclass
class _Tape:
    """The bag that is being written, with its clock."""

    file: McapFile
    types: Types
    now_s: float = 0.0
    labels: list[tuple[int, str]] = field(default_factory=list)
    frames: int = 0
    due: dict[str, float] = field(default_factory=dict)

    @property
    def time_ns(self) -> int:
        return START_NS + round(self.now_s * 1e9)

    def stamp(self, time_ns: int | None = None) -> dict[str, int]:
        seconds, nanoseconds = divmod(self.time_ns if time_ns is None else time_ns, 1_000_000_000)
        return {"sec": seconds, "nanosec": nanoseconds}

    def write(self, topic: str, values: dict[str, Any]) -> None:
        self.file.write(topic, self.time_ns, self.types.encode(TOPICS[topic], values))

    def is_due(self, what: str, every_s: float) -> bool:
        if self.now_s + 1e-9 < self.due.get(what, 0.0):
            return False
        self.due[what] = self.now_s + every_s
        return True


@dataclass(frozen=True)
class _Frame:
    """A frame of the recording."""

    jpeg: bytes
    stamp_ns: int
    look: FloorPicture


def record_simulated(
    config: RecordConfig, model: LoadedModel, say: Callable[[str], None]
) -> tuple[int, int]:
    """Write the bag and NAME.labels.csv beside it; returns (frames, decisions). Raises NavsimError, EvaluationError."""
    from navsim.world import World

    types = own_types()
    spec = PromptSpec.from_model_folder(Path(config.target_model))
    # With a stopped clock, chunks end only when full, so that the same seeds give the same file.
    with McapFile(config.out, types, config.force, lambda: 0.0) as file, World() as world:
        for topic, kind in TOPICS.items():
            file.add_topic(topic, kind)
        tape = _Tape(file, types)
        for number, episode in enumerate(_episodes(config)):
            say(f"episode {number + 1} of {config.episodes}: {episode.instruction}")
            _Recording(tape, world, episode, number + 1, model, spec).run()
            tape.now_s += PAUSE_S
    write_bytes_atomic(config.labels, _as_csv(tape.labels))
    return tape.frames, len(tape.labels)


def _episodes(config: RecordConfig) -> Iterator[Episode]:
    """The first `episodes` episodes from `seed` on whose target has a wanted kind or colour."""
    known = {*KIND_BY_NAME, *COLOURS}
    if unknown := sorted(set(config.about) - known):
        raise BadRequest(f"no kind or colour is called {unknown[0]!r}: use some of {', '.join(sorted(known))}")
    every = (make_episode(seed, config.split) for seed in itertools.count(config.seed))
    wanted = (one for one in every if not config.about or set(one.target_name.split()) & set(config.about))
    return itertools.islice(wanted, config.episodes)


def _as_csv(labels: Sequence[tuple[int, str]]) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("stamp", "action"))
    rows.writerows(labels)
    return text.getvalue().encode()


class _Recording:
    """Records one episode."""

    def __init__(
        self, tape: _Tape, world: World, episode: Episode, number: int, model: LoadedModel, spec: PromptSpec
    ) -> None:
        self.tape, self.world, self.episode, self.number = tape, world, episode, number
        self.model, self.spec = model, spec
        self.base = PlanarBase(episode.room, episode.start)
        self.policy, self.body = ExplorationPolicy("frontier_search"), simulated_body()
        self.sequence = 0
        world.load(episode.room)

    def run(self) -> None:
        """Record until the model says stop or the decisions are used up."""
        self._odometry()
        self.tape.write(INSTRUCTION, {"data": self.episode.instruction})
        contact = False
        for _ in range(MAX_DECISIONS):
            frame = self._frame()
            move = self._decide(frame, contact)
            if move is None or move.action.is_stop:
                break
            contact = self._drive(move.action)
        for _ in range(5):
            self._tick(0.0, 0.0)

    def _frame(self) -> _Frame:
        jpeg = camera_jpeg(self.world.render(self.base.pose), JPEG_QUALITY)
        frame = _Frame(jpeg, self.tape.time_ns, FloorPicture(pixels(jpeg), self.body))
        header = {"stamp": self.tape.stamp(), "frame_id": "front_camera"}
        values = {"header": header, "format": "rgb8; jpeg compressed bgr8", "data": list(frame.jpeg)}
        self.tape.write(IMAGE, values)
        self.tape.frames += 1
        self.tape.due["camera"] = self.tape.now_s + CAMERA_S
        return frame

    def _decide(self, frame: _Frame, contact: bool) -> Move | None:
        """Ask the target, and return the policy's move; None if the answer has no action."""
        prompt = build_prompt(self.spec, self.model.tokenizer, self.episode.instruction, [frame.jpeg])
        ids = generate_local(self.model, prompt, GenerationOptions(MAX_NEW_TOKENS))
        text = str(self.model.tokenizer.decode(ids, skip_special_tokens=True))
        action = find_action(text)
        self._label(frame)
        self.tape.now_s += THINK_S
        move = None
        if action is not None:
            move = self.policy.decide(Observation.from_answer(text, action, contact, self._pose(), frame.look))
            self._command(move, frame)
        self._say(frame, text, ids, list(prompt.ids), action, move)
        return move

    def _label(self, frame: _Frame) -> None:
        action = find_action(oracle_answer(self.world, self.episode, self.base.pose))
        assert action is not None
        self.tape.labels.append((frame.stamp_ns, action.short))

    def _command(self, move: Move, frame: _Frame) -> None:
        self.sequence += 1
        action = move.action
        self.tape.write(
            COMMAND,
            {
                "header": {"stamp": self.tape.stamp()},
                "session": SESSION,
                "instruction": self.number,
                "sequence": self.sequence,
                "frame_stamp": self.tape.stamp(frame.stamp_ns),
                "frame_age_s": THINK_S,
                "deadline": {"sec": 4, "nanosec": 0},
                "kind": 0 if action.is_stop else 2,
                "source": int(move.source is ActionSource.EXPLORATION),
                "distance_m": action.distance_m,
                "angle_rad": action.angle_rad,
                "text": action.sentence if action.is_stop else action.short,
            },
        )

    def _say(
        self,
        frame: _Frame,
        text: str,
        ids: list[int],
        prompt_ids: list[int],
        action: Action | None,
        move: Move | None,
    ) -> None:
        reasoning = reasoning_of(text)
        if move is not None:
            self.tape.write(REASONING, {"data": reasoning})
            self.tape.write(ACTION, {"data": move.action.sentence or move.action.short})
        explored = move is not None and move.source is ActionSource.EXPLORATION
        self.tape.write(
            METRICS,
            {
                "header": {"stamp": self.tape.stamp()},
                "session": SESSION,
                "instruction": self.number,
                "sequence": self.sequence if move is not None else 0,
                "frame_stamp": self.tape.stamp(frame.stamp_ns),
                "instruction_text": self.episode.instruction,
                "method": "ar",
                "text": text,
                "reasoning": reasoning,
                "model_action": action.sentence if action else "",
                "action": move.action.short if move else "",
                "source": int(explored) if move else 2,
                "rule": move.rule if move else "",
                "error_code": 0 if action else 6,
                "error": "" if action else "the answer holds no action sentence: not moving",
                "tokens": len(ids),
                "prompt_ids": prompt_ids,
                "token_ids": ids,
            },
        )

    def _drive(self, action: Action) -> bool:
        """Carry out the motion as motion_node does; returns whether an obstacle ended it."""
        executor = MotionExecutor()
        motion = Motion(action.distance_m, action.angle_rad)
        executor.start(motion, self._pose(), self.tape.now_s)
        while True:
            velocity, progress = executor.update(self._pose(), self.tape.now_s)
            self._tick(velocity.linear, velocity.angular)
            if not executor.is_active:
                slid = abs(executor.done(self._pose()).distance_m) < abs(action.distance_m) / 2
                return progress is MotionState.BLOCKED or (progress is MotionState.EXPIRED and slid)
            if self.tape.is_due("camera", CAMERA_S):
                self._frame()

    def _tick(self, linear: float, angular: float) -> None:
        self.base.command(linear, angular)
        self.base.step(TICK_S)
        self.tape.now_s += TICK_S
        if self.tape.is_due("odom", ODOM_S):
            self._odometry()
            self.tape.write(CMD_VEL, {"linear": {"x": linear}, "angular": {"z": angular}})

    def _odometry(self) -> None:
        pose = self._pose()
        turned = {"z": math.sin(pose.yaw / 2), "w": math.cos(pose.yaw / 2)}
        place = {"position": {"x": pose.x, "y": pose.y}, "orientation": turned}
        speed = {"twist": {"linear": {"x": self.base.vx}, "angular": {"z": self.base.wz}}}
        header = {"stamp": self.tape.stamp(), "frame_id": "odom"}
        self.tape.write(
            ODOM, {"header": header, "child_frame_id": "base_link", "pose": {"pose": place}, "twist": speed}
        )

    def _pose(self) -> Pose:
        return Pose(self.base.pose.x, self.base.pose.y, self.base.pose.yaw)
