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

"""
The parameters of each node.

`python -m spec_vlm_nav.parameters.nodes` prints the tables of docs/parameters.md.
"""

from __future__ import annotations

from spec_vlm_nav.blackbox.parameters import BLACKBOX
from spec_vlm_nav.camera.parameters import CAMERA
from spec_vlm_nav.common.parameters import markdown, Parameter
from spec_vlm_nav.console.parameters import CONSOLE
from spec_vlm_nav.deciding.parameters import VLM_NAV
from spec_vlm_nav.missions.parameters import MISSION
from spec_vlm_nav.motion.parameters import MOTION
from spec_vlm_nav.robot.parameters import GO2_STATE


def tables() -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of every node, by the node's name."""
    return {
        "vlm_nav_node": VLM_NAV,
        "motion_node": MOTION,
        "camera_decode_node": CAMERA,
        "blackbox_node": BLACKBOX,
        "go2_state_node": GO2_STATE,
        "mission_node": MISSION,
        "console_node": CONSOLE,
    }


def parameter_of(node: str, name: str) -> Parameter:
    """Return a node's parameter."""
    return next(parameter for parameter in tables()[node] if parameter.name == name)


if __name__ == "__main__":
    import sys

    shown = (f"### {name}\n\n{markdown(table)}" for name, table in tables().items())
    sys.stdout.write("\n\n".join(shown) + "\n")
