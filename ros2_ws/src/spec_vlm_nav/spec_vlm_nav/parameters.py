"""Every parameter of the two nodes, declared once: default, range, meaning, and whether it may change while running.

Data and checks without ROS; `nodes/declare.py` hands them to rclpy. `python -m spec_vlm_nav.parameters` prints them as
the README's tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spec_vlm_nav.backends import BACKENDS
from spec_vlm_nav.errors import ParameterError
from spec_vlm_nav.exploration import POLICIES

Value = bool | int | float | str


@dataclass(frozen=True)
class Parameter:
    """One parameter; `live`: may be changed while the node runs."""

    name: str
    default: Value
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    live: bool = False

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        return {bool: "true or false", str: "any text"}.get(type(self.default), "any number")

    def check(self, value: object) -> None:
        """Raise ParameterError with the allowed values unless `value` is one of them."""
        kind = type(self.default)
        right_type = isinstance(value, kind) and not (kind is not bool and isinstance(value, bool))
        right = right_type
        if right and self.choices:
            right = value in self.choices
        if right and self.low is not None and self.high is not None:
            assert isinstance(value, (int, float))
            right = math.isfinite(value) and self.low <= value <= self.high
        if not right:
            kind_name = "" if right_type else f"{kind.__name__}, "
            raise ParameterError(
                f"parameter {self.name} = {value!r} refused: allowed is {kind_name}{self.allowed}"
            )


_RELIABILITY = ("best_effort", "reliable")

VLM_NAV = (
    Parameter("verifier", "tcp://127.0.0.1:5555", "Address of the cloud verifier, tcp://HOST:PORT."),
    Parameter(
        "method",
        "fsd",
        "How answers are decoded: fsd (drafts prepared while the cloud verifies), auto (chosen as it goes), sd, "
        "specedge, picospec, or ar (the cloud alone).",
        choices=("fsd", "auto", "sd", "specedge", "picospec", "ar"),
    ),
    Parameter("gamma", 4, "Draft tokens a round.", 1, 32, live=True),
    Parameter("draft_model", "default_models/nav-draft", "Draft model: Hugging Face folder or hub id."),
    Parameter(
        "prompt",
        "auto",
        "Prompt preset; auto: nav_prompt.json in the draft's folder, else what suits it.",
    ),
    Parameter("max_new_tokens", 96, "Longest answer, tokens.", 8, 1024, live=True),
    Parameter(
        "temperature",
        0.0,
        "0: greedy; above: the target's distribution by shared noise.",
        0.0,
        2.0,
        live=True,
    ),
    Parameter("seed", 0, "Seed of the shared noise.", 0, 2**31 - 1, live=True),
    Parameter("device", "auto", "Device of the draft model: auto, cpu, cuda, cuda:0 ..."),
    Parameter(
        "dtype", "auto", "Type the draft computes in.", choices=("auto", "float32", "float16", "bfloat16")
    ),
    Parameter(
        "quantize", "none", "bitsandbytes quantisation of the draft.", choices=("none", "8bit", "4bit")
    ),
    Parameter("threads", 1, "CPU threads of the draft model.", 1, 64),
    Parameter("connect_timeout_s", 1.0, "Longest wait for the verifier's hand-shake, s.", 0.05, 60.0),
    Parameter("reply_timeout_s", 1.0, "Silence of the verifier that counts as a lost link, s.", 0.05, 60.0),
    Parameter("image_transport", "compressed", "Type of the image topic.", choices=("compressed", "raw")),
    Parameter("image_reliability", "best_effort", "QoS of the image subscription.", choices=_RELIABILITY),
    Parameter("image_width", 0, "Width the model gets, pixels; 0: as it comes.", 0, 4096),
    Parameter("image_height", 0, "Height the model gets, pixels; 0: as it comes.", 0, 4096),
    Parameter(
        "jpeg_quality", 90, "Quality where the node itself encodes JPEG (raw topics, resizing).", 30, 100
    ),
    Parameter(
        "exploration", "damped_search", "Exploration policy around the model.", choices=POLICIES, live=True
    ),
    Parameter(
        "camera_timeout_s", 1.0, "No frame for so long: stand still, s (receive time).", 0.1, 10.0, live=True
    ),
    Parameter("decision_timeout_s", 20.0, "Longest decision, s.", 0.5, 600.0, live=True),
    Parameter(
        "motion_deadline_s",
        4.0,
        "A motion command is void so long after its receipt, s.",
        0.2,
        30.0,
        live=True,
    ),
    Parameter(
        "settle_s",
        0.05,
        "A frame is used when received so long after a motion's end, s.",
        0.0,
        5.0,
        live=True,
    ),
    Parameter(
        "max_decisions", 0, "Give an instruction up after so many decisions; 0: never.", 0, 100000, live=True
    ),
    Parameter(
        "parse_failure_limit", 3, "So many answers in a row without an action: give up.", 1, 100, live=True
    ),
    Parameter("max_instruction_chars", 500, "Longer instructions are refused.", 10, 10000),
)

MOTION = (
    Parameter(
        "motion_backend",
        "twist",
        "How the robot is told to move: twist (cmd_vel, any robot) or go2_sport (Unitree's sport API, no driver).",
        choices=BACKENDS,
    ),
    Parameter("rate_hz", 30.0, "Rate of cmd_vel, Hz.", 20.0, 200.0),
    Parameter("enable_stamped_cmd_vel", False, "Publish TwistStamped instead of Twist (as Nav2 names it)."),
    Parameter("cmd_vel_frame", "base_link", "frame_id of TwistStamped."),
    Parameter("odom_reliability", "best_effort", "QoS of the odometry subscription.", choices=_RELIABILITY),
    Parameter(
        "max_linear", 0.5, "Fastest forward speed, m/s; also the cruising speed.", 0.05, 1.5, live=True
    ),
    Parameter("max_angular", 0.8, "Fastest yaw rate, rad/s; also the turning speed.", 0.1, 2.0, live=True),
    Parameter("linear_acceleration", 1.0, "m/s2; slowing down may be twice that.", 0.1, 10.0, live=True),
    Parameter("angular_acceleration", 3.0, "rad/s2; slowing down may be twice that.", 0.2, 30.0, live=True),
    Parameter("linear_tolerance", 0.02, "A distance counts as reached so close, m.", 0.005, 0.2, live=True),
    Parameter("angular_tolerance", 0.026, "An angle counts as reached so close, rad.", 0.005, 0.3, live=True),
    Parameter(
        "blocked_after_s", 0.7, "Asked to move but no progress for so long: blocked, s.", 0.2, 5.0, live=True
    ),
    Parameter(
        "odom_timeout_s", 0.5, "No odometry for so long: stop, s (receive time).", 0.05, 5.0, live=True
    ),
    Parameter(
        "max_command_s", 8.0, "No command is carried out for longer, whatever its deadline, s.", 0.2, 30.0
    ),
    Parameter(
        "max_frame_age_s", 30.0, "A command decided from an older frame is refused, s.", 0.1, 600.0, live=True
    ),
    Parameter("zero_burst", 5, "Stops (zero velocities) sent when the node ends.", 1, 100),
)


def check_all(table: Sequence[Parameter], values: Mapping[str, object]) -> None:
    """Check some values against a table. Raises ParameterError for the first that is wrong or unknown."""
    known = {p.name: p for p in table}
    for name, value in values.items():
        if name not in known:
            raise ParameterError(f"no parameter '{name}' here")
        known[name].check(value)


def markdown(table: Sequence[Parameter]) -> str:
    """Return the table as Markdown."""
    rows = ["| parameter | default | allowed | live | meaning |", "|---|---|---|---|---|"]
    for p in table:
        default = f"`{str(p.default).lower() if isinstance(p.default, bool) else p.default}`"
        rows.append(
            f"| `{p.name}` | {default} | {p.allowed} | {'yes' if p.live else 'no'} | {p.description} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    import sys

    sys.stdout.write(f"### vlm_nav_node\n\n{markdown(VLM_NAV)}\n\n### motion_node\n\n{markdown(MOTION)}\n")
