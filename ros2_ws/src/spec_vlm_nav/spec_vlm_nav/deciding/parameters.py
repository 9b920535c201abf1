# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""The parameters of vlm_nav_node, and the settings of its parts that they make."""

from __future__ import annotations

from collections.abc import Mapping

from spec_vlm_nav.camera.images import PictureOptions
from spec_vlm_nav.common.parameters import (
    config_of,
    IMAGE_TRANSPORT,
    like,
    limit,
    live,
    Parameter,
    RELIABILITY,
    SAFETY_LOCKED,
    Tighter,
    Value,
)
from spec_vlm_nav.deciding.parts.interfaces import NavigatorConfig
from spec_vlm_nav.exploring.floor_reading import CameraGeometry, RobotBody
from spec_vlm_nav.language.exploration import AUTO, POLICIES
from spec_vlm_nav.model.decider import (
    ANSWER_GRAMMARS,
    ANSWER_ORDERS,
    DecoderSettings,
    METHOD_FORM,
    ON_LINK_LOSS,
    why_not_method,
)
from spec_vlm_nav.model.folders import find_model
from specdec.options import DecodingOptions, GenerationOptions, ModelOptions

NAVIGATOR_CONSTANTS = (
    "status_grace_s",
    "status_timeout_s",
    "first_retry_s",
    "last_retry_s",
    "internal_failure_limit",
)
VLM_NAV = (
    Parameter(
        "autostart",
        True,
        "Configure and activate at the start; false: wait for lifecycle transitions.",
    ),
    Parameter(
        "verifier",
        DecoderSettings.verifier,
        "The cloud verifier, tcp://HOST:PORT, or fleet://HOST:PORT.",
    ),
    Parameter(
        "verifier_key",
        "",
        "Key file for a verifier with keys (specnav keys export); empty: in the clear.",
    ),
    live(
        "method",
        DecoderSettings.method,
        "How answers are decoded: fsd (drafts prepared while the cloud verifies), auto (chosen "
        "as it goes), ngram (no draft model), ar (the cloud alone), or another of specdec.",
        form=METHOD_FORM,
        refuses=why_not_method,
    ),
    like(DecodingOptions, "gamma", live=True),
    Parameter(
        "draft_model",
        DecoderSettings.draft_model,
        "Draft model: an absolute folder, one in the package's share, a hub id, or a GGUF file.",
    ),
    live("next_draft_model", "", "What ~/reload_draft loads; empty: draft_model, read from the disk again."),
    Parameter(
        "gguf",
        "",
        "Of a draft in a GGUF file: NAME=VALUE,... of gpu_layers, context, kv, threads, mmproj.",
    ),
    Parameter(
        "prompt",
        DecoderSettings.prompt,
        "Prompt preset; auto: nav_prompt.json in the draft's folder, otherwise its family's.",
    ),
    live("max_new_tokens", DecoderSettings.max_new_tokens, "Longest answer, tokens.", 8, 1024),
    like(GenerationOptions, "temperature", live=True, high=2.0),
    like(
        GenerationOptions,
        "seed",
        live=True,
        description="Seed of the shared noise.",
        high=2**31 - 1,
    ),
    like(
        ModelOptions,
        "device",
        description="Device of the draft model: auto, cpu, cuda, cuda:0 ...",
    ),
    like(ModelOptions, "dtype", description="Type the draft computes in."),
    like(ModelOptions, "quantize", description="bitsandbytes quantisation of the draft."),
    Parameter(
        "energy_root",
        DecoderSettings.energy_root,
        "Where sysfs lies, for the energy sensors of /diagnostics; none: no sensor is read.",
    ),
    Parameter("threads", DecoderSettings.threads, "CPU threads of the draft model.", 1, 64),
    Parameter(
        "connect_timeout_s",
        DecoderSettings.connect_timeout_s,
        "Longest wait for the verifier's hand-shake, s.",
        0.05,
        60.0,
    ),
    Parameter(
        "reply_timeout_s",
        DecoderSettings.reply_timeout_s,
        "Silence of the verifier that counts as a lost link, s.",
        0.05,
        60.0,
    ),
    limit(
        Tighter.LOWER,
        "link_timeout_s",
        DecoderSettings.link_timeout_s,
        "Link monitor: silence that counts as a lost link, s.",
        0.3,
        60.0,
    ),
    live(
        "resume_timeout_s",
        DecoderSettings.resume_timeout_s,
        "An answer cut off goes on where it was if the verifier is back so soon, s; 0: never.",
        0.0,
        60.0,
    ),
    limit(
        Tighter.EARLIER,
        "on_link_loss",
        DecoderSettings.on_link_loss,
        "Without a verifier: stop (and give up after a while), hold (wait as long as it takes), "
        "or draft_only_slow (the draft model decides alone, slowly, marked unverified).",
        choices=ON_LINK_LOSS,
    ),
    live(
        "answer_order",
        DecoderSettings.answer_order,
        "as_trained, or action_first: the model is asked for the action before its reasoning.",
        choices=ANSWER_ORDERS,
    ),
    live(
        "answer_grammar",
        DecoderSettings.answer_grammar,
        "off, or actions: the target can only say reasoning and then one action sentence, so that "
        "every answer parses, and what is certain of it takes no time.",
        choices=ANSWER_GRAMMARS,
    ),
    IMAGE_TRANSPORT,
    Parameter("image_reliability", "best_effort", "QoS of the image subscription.", choices=RELIABILITY),
    Parameter(
        "image_width",
        0,
        "Width the model gets, pixels; 0: as its prompt says, otherwise as it comes.",
        0,
        4096,
    ),
    Parameter(
        "image_height",
        0,
        "Height the model gets, pixels; 0: as its prompt says, otherwise as it comes.",
        0,
        4096,
    ),
    live(
        "pixels",
        307200,
        "Most pixels of a picture without such a size: larger ones are scaled down; 0: never.",
        0,
        16777216,
    ),
    Parameter(
        "jpeg_quality",
        90,
        "Quality where the node itself encodes JPEG (raw topics, resizing).",
        30,
        100,
    ),
    live(
        "exploration",
        "auto",
        "Exploration policy around the model: auto (the one whose language its prompt declares "
        "to speak, else none), frontier_search (refused for other models), or none.",
        choices=(AUTO, *POLICIES),
    ),
    live(
        "camera_height_m",
        0.0,
        "Of the camera over the floor, m. frontier_search then reads from the pictures where the "
        "floor ends, and passes what it remembers beside the robot a little wider. 0: not known.",
        0.0,
        3.0,
    ),
    live("camera_view_rad", 1.5708, "Width of the view in the pictures that the model gets, rad.", 0.3, 2.6),
    live("camera_tilt_rad", 0.0, "Of the camera, downwards, rad.", -0.5, 1.2),
    limit(
        Tighter.HIGHER,
        "robot_radius_m",
        0.26,
        "What the robot needs to either side to pass something, m.",
        0.05,
        2.0,
    ),
    limit(
        Tighter.LOWER,
        "camera_timeout_s",
        1.0,
        "No frame for this long: stand still, s (receive time).",
        0.1,
        10.0,
    ),
    limit(Tighter.LOWER, "decision_timeout_s", 20.0, "Longest decision, s.", 0.5, 600.0),
    limit(
        Tighter.LOWER,
        "motion_deadline_s",
        4.0,
        "A motion command is void this long after its receipt, s.",
        0.2,
        30.0,
    ),
    limit(
        Tighter.HIGHER,
        "settle_s",
        0.05,
        "A frame is used when received this long after a motion's end, s.",
        0.0,
        5.0,
    ),
    limit(
        Tighter.LOWER_0_OFF,
        "max_decisions",
        300,
        "Give an instruction up after this many decisions; 0: never.",
        0,
        100000,
    ),
    limit(
        Tighter.LOWER_0_OFF,
        "max_duration_s",
        600.0,
        "Give an instruction up after this long, s, unless its goal allows less; 0: never.",
        0.0,
        86400.0,
    ),
    limit(
        Tighter.LOWER_0_OFF,
        "max_distance_m",
        100.0,
        "Give an instruction up after this distance, m; 0: never.",
        0.0,
        100000.0,
    ),
    limit(
        Tighter.LOWER,
        "parse_failure_limit",
        3,
        "Give up after this many answers in a row without an action.",
        1,
        100,
    ),
    limit(
        Tighter.LOWER,
        "max_obstructions",
        5,
        "This many motions blocked, refused or not responded to, without progress in between: give up.",
        1,
        100,
    ),
    limit(
        Tighter.LOWER_0_OFF,
        "patience_s",
        30.0,
        "Camera, odometry, (on_link_loss stop) verifier or usable answers gone for this long: "
        "give up, s; 0: never.",
        0.0,
        86400.0,
    ),
    live(
        "early_action",
        True,
        "Move when the action sentence is verified; false: when the whole answer is there.",
    ),
    live(
        "prefetch",
        False,
        "Decide the next action while the motion before it settles; dropped when the scene "
        "changes until its end.",
    ),
    limit(
        Tighter.LOWER,
        "prefetch_tolerance",
        3.0,
        "Mean difference of two frames of the same scene at most, grey levels of 255.",
        0.0,
        255.0,
    ),
    SAFETY_LOCKED,
    Parameter(
        "dry_run",
        False,
        "Decide, but send no motion: for bags played into the live node.",
        tighter=Tighter.TRUE,
    ),
    Parameter("max_instruction_chars", 500, "Longer instructions are refused.", 10, 10000),
)


def decoder_settings(values: Mapping[str, Value]) -> DecoderSettings:
    """Return the decider's part of the parameters. Raises ParameterError for a missing model."""
    picture = PictureOptions(
        int(values["image_width"]),
        int(values["image_height"]),
        int(values["jpeg_quality"]),
        int(values["pixels"]),
    )
    model = find_model(str(values["draft_model"]))
    return config_of(DecoderSettings, values, draft_model=model, picture=picture)


def navigator_config(values: Mapping[str, Value]) -> NavigatorConfig:
    """Return the navigator's part of the parameters."""
    return config_of(NavigatorConfig, values, constants=NAVIGATOR_CONSTANTS, body=_body(values))


def _body(values: Mapping[str, Value]) -> RobotBody | None:
    """Return the camera over the floor and the robot's size; None where the height is not reported."""
    height_m = float(values["camera_height_m"])
    if not height_m:
        return None
    eye = CameraGeometry(height_m, float(values["camera_view_rad"]), float(values["camera_tilt_rad"]))
    return RobotBody(eye, float(values["robot_radius_m"]))
