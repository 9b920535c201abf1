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

"""Rows of /diagnostics, free of ROS; `ros/basics.py` publishes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
import enum


class Level(enum.Enum):
    """Numbers of diagnostic_msgs/DiagnosticStatus."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


@dataclass(frozen=True)
class DiagnosticRow:
    """One row of /diagnostics: the part of the node, its level, a message and values."""

    name: str
    level: Level
    message: str
    values: Mapping[str, object] = field(default_factory=dict)
