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

"""The parameters of vlm_nav_node, and the configurations built from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
from spec_vlm_nav.language.prompting import AUTO, POLICIES
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


def _why_not_root(text: str) -> str:
    """Return why a text cannot be `energy_root`, or ""."""
    try:
        usable = text in (DecoderSettings.energy_root, "none") or Path(text).is_dir()
    except OSError:  # a name too long
        usable = False
    return "" if usable else "it must be a folder or none"


VLM_NAV: tuple[Parameter, ...] = (
    Parameter("autostart", True,
              "Configure and activate at the start; false: wait for lifecycle transitions."),
    Parameter("verifier", DecoderSettings.verifier,
              "The cloud verifier, tcp://HOST:PORT, or fleet://HOST:PORT."),
    Parameter("verifier_key", "",
              "Key file for a verifier with keys (specnav keys export); empty: unencrypted."),
    live("method", DecoderSettings.method,
         "Decoding method: fsd (drafts prepared while the cloud verifies), auto (chosen while running), "
         "ngram (no draft model), ar (the cloud alone), or another method of specdec.",
         form=METHOD_FORM, refuses=why_not_method),
    like(DecodingOptions, "gamma", live=True),
    Parameter("draft_model", DecoderSettings.draft_model,
              "Draft model: an absolute folder, one in the package's share, a hub id, or a GGUF file."),
    live("next_draft_model", "", "Model that ~/reload_draft loads; empty: draft_model, read again."),
    Parameter("gguf", "",
              "Options for a GGUF draft: NAME=VALUE,... with gpu_layers, context, kv, threads, mmproj."),
    Parameter("prompt", DecoderSettings.prompt,
              "Prompt preset; auto: nav_prompt.json in the draft's folder, otherwise its family's preset."),
    live("max_new_tokens", DecoderSettings.max_new_tokens, "Longest answer, tokens.", 8, 1024),
    like(GenerationOptions, "temperature", live=True, high=2.0),
    like(GenerationOptions, "seed", live=True, description="Seed of the shared noise.", high=2**31 - 1),
    like(ModelOptions, "device", description="Device of the draft model: auto, cpu, cuda, cuda:0 ..."),
    like(ModelOptions, "dtype", description="Data type the draft computes in."),
    like(ModelOptions, "quantize", description="bitsandbytes quantisation of the draft."),
    Parameter("energy_root", DecoderSettings.energy_root,
              "Root of sysfs for the energy sensors of /diagnostics; none: no sensor is read.",
              form="a folder or none", refuses=_why_not_root),
    Parameter("threads", DecoderSettings.threads, "CPU threads of the draft model.", 1, 64),
    Parameter("connect_timeout_s", DecoderSettings.connect_timeout_s,
              "Longest wait for the verifier's handshake, s.", 0.05, 60.0),
    Parameter("reply_timeout_s", DecoderSettings.reply_timeout_s,
              "Silence of the verifier during an answer that counts as a lost link, s.", 0.05, 60.0),
    limit(Tighter.LOWER, "link_timeout_s", DecoderSettings.link_timeout_s,
          "Link monitor: silence that counts as a lost link, s.", 0.3, 60.0),
    live("resume_timeout_s", DecoderSettings.resume_timeout_s,
         "An interrupted answer resumes if the verifier is back within this time, s; 0: never.", 0.0, 60.0),
    limit(Tighter.EARLIER, "on_link_loss", DecoderSettings.on_link_loss,
          "Without a verifier: stop (and give up after patience_s), hold (wait as long as it takes), or "
          "draft_only_slow (the draft model decides alone, slowly, marked unverified).",
          choices=ON_LINK_LOSS),
    live("answer_order", DecoderSettings.answer_order,
         "as_trained, or action_first: the prompt asks for the action before the reasoning.",
         choices=ANSWER_ORDERS),
    live("answer_grammar", DecoderSettings.answer_grammar,
         "off, or actions: the target can only produce reasoning and then one action sentence. So every "
         "answer parses, and tokens with one possible value take no time.", choices=ANSWER_GRAMMARS),
    IMAGE_TRANSPORT,
    Parameter("image_reliability", "best_effort", "QoS of the image subscription.", choices=RELIABILITY),
    *(Parameter(f"image_{side}", 0,
                f"{side.capitalize()} of the picture for the model, pixels; 0: as its prompt says, otherwise "
                "unchanged.", 0, 4096)
      for side in ("width", "height")),
    live("pixels", 307200,
         "Most pixels of a picture without a set size; larger ones are scaled down; 0: never.", 0, 16777216),
    Parameter("jpeg_quality", 90,
              "JPEG quality where the node itself encodes (raw topics, resizing).", 30, 100),
    live("exploration", "auto",
         "Exploration policy around the model: auto (the policy whose language the prompt declares, else "
         "none), frontier_search (refused for other models), or none.", choices=(AUTO, *POLICIES)),
    live("camera_height_m", 0.0,
         "Height of the camera above the floor, m. frontier_search then reads from the pictures where the "
         "floor ends, and passes remembered obstacles with a little more room. 0: unknown.", 0.0, 3.0),
    live("camera_view_rad", 1.5708, "Horizontal field of view of the model's pictures, rad.", 0.3, 2.6),
    live("camera_tilt_rad", 0.0, "Downward tilt of the camera, rad.", -0.5, 1.2),
    limit(Tighter.HIGHER, "robot_radius_m", 0.26,
          "Room that the robot needs to either side to pass an obstacle, m.", 0.05, 2.0),
    limit(Tighter.LOWER, "camera_timeout_s", 1.0,
          "No frame for this long: stand still, s (receive time).", 0.1, 10.0),
    limit(Tighter.LOWER, "decision_timeout_s", 20.0, "Longest decision, s.", 0.5, 600.0),
    limit(Tighter.LOWER, "motion_deadline_s", 4.0,
          "A motion command expires this long after its receipt, s.", 0.2, 30.0),
    limit(Tighter.HIGHER, "settle_s", 0.05,
          "A frame is used if received at least this long after a motion's end, s.", 0.0, 5.0),
    limit(Tighter.LOWER_0_OFF, "max_decisions", 300,
          "Give an instruction up after this many decisions; 0: never.", 0, 100000),
    limit(Tighter.LOWER_0_OFF, "max_duration_s", 600.0,
          "Give an instruction up after this time, s, unless its goal allows less; 0: never.", 0.0, 86400.0),
    limit(Tighter.LOWER_0_OFF, "max_distance_m", 100.0,
          "Give an instruction up after this distance, m; 0: never.", 0.0, 100000.0),
    limit(Tighter.LOWER, "parse_failure_limit", 3,
          "Give up after this many answers in a row without an action.", 1, 100),
    limit(Tighter.LOWER, "max_obstructions", 5,
          "Give up after this many motions blocked, refused or without response, with no progress in "
          "between.", 1, 100),
    limit(Tighter.LOWER_0_OFF, "patience_s", 30.0,
          "Give up after this time without camera, odometry, collision sensor, a ready robot, usable answers "
          "or (on_link_loss stop) verifier, s; 0: never.", 0.0, 86400.0),
    live("early_action", True,
         "Move when the action sentence is verified; false: when the whole answer is complete."),
    live("prefetch", False,
         "Decide the next action while the current motion settles; dropped if the scene changes before "
         "the motion ends."),
    limit(Tighter.LOWER, "prefetch_tolerance", 3.0,
          "Largest mean difference between two frames of the same scene, grey levels of 255.", 0.0, 255.0),
    SAFETY_LOCKED,
    Parameter("dry_run", False,
              "Decide, but send no motion: for bags played into the live node.", tighter=Tighter.TRUE),
    Parameter("max_instruction_chars", 500, "Longer instructions are refused.", 10, 10000),
)  # fmt: skip


def decoder_settings(values: Mapping[str, Value]) -> DecoderSettings:
    """Return the decider's configuration. Raises ParameterError for a missing model."""
    picture = PictureOptions(
        int(values["image_width"]),
        int(values["image_height"]),
        int(values["jpeg_quality"]),
        int(values["pixels"]),
    )
    model = find_model(str(values["draft_model"]))
    return config_of(DecoderSettings, values, draft_model=model, picture=picture)


def navigator_config(values: Mapping[str, Value]) -> NavigatorConfig:
    """Return the navigator's configuration."""
    return config_of(NavigatorConfig, values, body=_body(values))


def _body(values: Mapping[str, Value]) -> RobotBody | None:
    """Return the camera's geometry and the robot's size; None if the camera's height is not set."""
    height_m = float(values["camera_height_m"])
    if not height_m:
        return None
    camera = CameraGeometry(height_m, float(values["camera_view_rad"]), float(values["camera_tilt_rad"]))
    return RobotBody(camera, float(values["robot_radius_m"]))
