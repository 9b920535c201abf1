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

"""From the parameters of vlm_nav_node to the settings of its parts."""

from __future__ import annotations

from collections.abc import Mapping

from spec_vlm_nav.camera.images import PictureOptions
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.deciding.parts.interfaces import NavigatorConfig
from spec_vlm_nav.exploring.floor_reading import CameraGeometry, RobotBody
from spec_vlm_nav.model.decider import DecoderSettings
from spec_vlm_nav.model.folders import find_model


def decoder_settings(values: Mapping[str, Value]) -> DecoderSettings:
    """Return the decider's part of the parameters. Raises ParameterError for a missing model."""
    return DecoderSettings(
        verifier=str(values["verifier"]),
        verifier_key=str(values["verifier_key"]),
        draft_model=find_model(str(values["draft_model"])),
        gguf=str(values["gguf"]),
        method=str(values["method"]),
        gamma=int(values["gamma"]),
        max_new_tokens=int(values["max_new_tokens"]),
        temperature=float(values["temperature"]),
        seed=int(values["seed"]),
        device=str(values["device"]),
        dtype=str(values["dtype"]),
        quantize=str(values["quantize"]),
        threads=int(values["threads"]),
        connect_timeout_s=float(values["connect_timeout_s"]),
        reply_timeout_s=float(values["reply_timeout_s"]),
        link_timeout_s=float(values["link_timeout_s"]),
        resume_timeout_s=float(values["resume_timeout_s"]),
        on_link_loss=str(values["on_link_loss"]),
        energy_root=str(values["energy_root"]),
        prompt=str(values["prompt"]),
        answer_order=str(values["answer_order"]),
        answer_grammar=str(values["answer_grammar"]),
        picture=PictureOptions(
            int(values["image_width"]),
            int(values["image_height"]),
            int(values["jpeg_quality"]),
            int(values["pixels"]),
        ),
    )


def navigator_config(values: Mapping[str, Value]) -> NavigatorConfig:
    """Return the navigator's part of the parameters."""
    return NavigatorConfig(
        camera_timeout_s=float(values["camera_timeout_s"]),
        decision_timeout_s=float(values["decision_timeout_s"]),
        motion_deadline_s=float(values["motion_deadline_s"]),
        settle_s=float(values["settle_s"]),
        patience_s=float(values["patience_s"]),
        on_link_loss=str(values["on_link_loss"]),
        parse_failure_limit=int(values["parse_failure_limit"]),
        max_obstructions=int(values["max_obstructions"]),
        max_decisions=int(values["max_decisions"]),
        max_duration_s=float(values["max_duration_s"]),
        max_distance_m=float(values["max_distance_m"]),
        max_instruction_chars=int(values["max_instruction_chars"]),
        early_action=bool(values["early_action"]),
        prefetch=bool(values["prefetch"]),
        prefetch_tolerance=float(values["prefetch_tolerance"]),
        dry_run=bool(values["dry_run"]),
        body=_body(values),
    )


def _body(values: Mapping[str, Value]) -> RobotBody | None:
    """Return the camera over the floor and the robot's size; None where the height is not reported."""
    height_m = float(values["camera_height_m"])
    if not height_m:
        return None
    eye = CameraGeometry(
        height_m, float(values["camera_view_rad"]), float(values["camera_tilt_rad"])
    )
    return RobotBody(eye, float(values["robot_radius_m"]))
