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

"""The parameters of console_node, and those of other nodes that can be changed on its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spec_vlm_nav.common.parameters import IMAGE_TRANSPORT, Parameter, RELIABILITY
from spec_vlm_nav.deciding.parameters import VLM_NAV
from spec_vlm_nav.motion.parameters import MOTION

CONSOLE: tuple[Parameter, ...] = (
    Parameter("host", "127.0.0.1", "Address to listen on; other than loopback needs tokens."),
    Parameter("port", 8765, "Port of the page; 0: a free one, shown in the log.", 0, 65535),
    Parameter("certificate", "", "TLS: certificate file (PEM)."),
    Parameter("key", "", "TLS: its key file (PEM)."),
    Parameter("insecure", False, "Allow other addresses than loopback without TLS."),
    Parameter("published_on_loopback", False,
              "In a container whose port is published only on its host's loopback: serve as on loopback, "
              "without tokens."),
    Parameter("tokens_file", "",
              "Hashes of the tokens; empty: spec_vlm_nav/console_tokens.json in ROS_HOME or ~/.ros; none: "
              "on loopback every client is an operator."),
    Parameter("audit_file", "",
              "Log of every command, one JSON line each; empty: spec_vlm_nav/console_audit.jsonl in "
              "ROS_HOME or ~/.ros."),
    Parameter("audit_mb", 10.0,
              "Size at which audit_file is rotated, MB; three rotated files are kept.", 0.1, 1000.0),
    Parameter("require_operator", False,
              "Dead man's switch: the robot stops when the page in control is lost (motion_node's own "
              "require_operator also keeps it standing without an operator)."),
    Parameter("page_timeout_s", 0.6,
              "A page without a heartbeat for this long loses control, s; without require_operator "
              "after 5 s at the earliest.", 0.3, 10.0),
    Parameter("page_busy_s", 0.4,
              "If the page in control does not respond for this long while the robot moves, the robot "
              "stops, as no STOP would be heard, s; 0: not watched.", 0.0, 10.0),
    IMAGE_TRANSPORT,
    Parameter("image_reliability", "best_effort", "QoS of the camera.", choices=RELIABILITY),
    Parameter("odom_reliability", "best_effort", "QoS of the odometry.", choices=RELIABILITY),
    Parameter("templates", "",
              "Instructions that the page offers, separated by |; empty: built-in examples."),
    Parameter("blackbox_folder", "",
              "blackbox_node's folder, whose files the page lists; empty: its default."),
    Parameter("simulator", False, "The robot is simulated (navsim): the page offers faults and other rooms."),
    Parameter("max_pages", 16, "Most open pages; a quarter is reserved for operators.", 1, 256),
)  # fmt: skip
LIVE: dict[str, dict[str, Parameter]] = {
    node: {p.name: p for p in table if p.live}
    for node, table in (("vlm_nav_node", VLM_NAV), ("motion_node", MOTION))
}


def live_rows(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the live parameters with type, range and description; values: by NODE/NAME."""
    return [
        {
            "node": node,
            "name": p.name,
            "value": values.get(f"{node}/{p.name}"),
            "kind": type(p.default).__name__,
            "low": p.low,
            "high": p.high,
            "choices": list(p.choices),
            "about": p.description,
        }
        for node, table in LIVE.items()
        for p in table.values()
    ]


def checked(node: str, name: str, given: object) -> Any:
    """Return a value in its parameter's type. Raises ParameterError; KeyError if not live."""
    parameter = LIVE[node][name]
    value: Any = given
    if isinstance(parameter.default, float) and isinstance(given, int) and given is not True:
        value = float(given)
    parameter.check(value)
    return value
