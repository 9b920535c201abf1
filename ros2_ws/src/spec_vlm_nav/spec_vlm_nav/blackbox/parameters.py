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

"""The parameters of blackbox_node, and their consistency checks."""

from __future__ import annotations

from collections.abc import Mapping

from spec_vlm_nav.blackbox.box import BoxConfig, MB
from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.common.parameters import config_of, IMAGE_TRANSPORT, live, Parameter, Value

BLACKBOX: tuple[Parameter, ...] = (
    live("keep_s", 60.0, "Length of the past kept in memory, s.", 5.0, 600.0),
    live("memory_mb", 64,
         "Memory for it, MB; if it is short, pictures are thinned out. Twice as much while a file is "
         "written.", 4, 4096),
    live("after_s", 5.0, "A file is written this long after its trigger, s.", 0.0, 60.0),
    live("min_gap_s", 30.0,
         "Shortest time between two files, s; triggers within it go into the next file.", 1.0, 600.0),
    live("silence_s", 2.0,
         "Silence of motion_node, once heard, that counts as a fault, s; 0: not watched.", 0.0, 60.0),
    Parameter("folder", "",
              "Folder of the files; empty: spec_vlm_nav/blackbox in ROS_HOME or ~/.ros, in a subfolder "
              "for the namespace if there is one."),
    live("disk_mb", 500, "Largest total size of the files, MB; the oldest are removed.", 4, 1_000_000),
    IMAGE_TRANSPORT,
    live("raw_rate_hz", 5.0, "With image_transport raw: pictures kept a second, as JPEG.", 0.1, 60.0),
    live("jpeg_quality", 80, "JPEG quality of these pictures.", 30, 100),
    Parameter("enable_stamped_cmd_vel", False, "cmd_vel is TwistStamped, as motion_node publishes it."),
    Parameter("collision_source", "none",
              "Also keep the collision sensor: scan, or one depth image a second.",
              choices=("none", "scan", "depth")),
)  # fmt: skip


def check_blackbox(values: Mapping[str, Value]) -> None:
    """Raise ParameterError if parameters that are valid on their own contradict each other."""
    keep_s = float(values["keep_s"])
    for name in ("after_s", "min_gap_s"):
        if float(values[name]) > keep_s:
            raise ParameterError(
                f"{name} = {values[name]} and keep_s = {keep_s:g} contradict each other: "
                "the events would be dropped before they are written"
            )
    if int(values["disk_mb"]) < int(values["memory_mb"]):
        raise ParameterError(
            f"disk_mb = {values['disk_mb']} and memory_mb = {values['memory_mb']} contradict each "
            "other: one file may be as large as the memory"
        )


def box_config(values: Mapping[str, Value]) -> BoxConfig:
    """Return the black box's configuration."""
    return config_of(BoxConfig, values, memory_bytes=int(values["memory_mb"]) * MB)
