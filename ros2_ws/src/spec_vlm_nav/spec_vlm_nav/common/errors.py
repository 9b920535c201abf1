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
The exceptions of the robot package, and foreign words as a message, a log or a report may repeat them.

Each exception's message says in one line what is wrong and what to do.
"""

from __future__ import annotations

LONGEST = 300
LONGEST_LINE = 1000  # of a log, characters


class NavigationError(Exception):
    """Base class of the exceptions that the robot package raises for its users."""


class InstructionError(NavigationError):
    """The instruction cannot be used (empty, too long)."""


class FrameError(NavigationError):
    """A camera message cannot be turned into an image."""


class PromptError(NavigationError):
    """A prompt specification is wrong or does not fit the model."""


class ParameterError(NavigationError):
    """A parameter has a value outside its range."""


class BackendError(NavigationError):
    """The configured motion back-end cannot be used here."""


class CameraError(NavigationError):
    """The configured video source cannot be used here."""


class BlackboxError(NavigationError):
    """The black box cannot be used as configured."""


class MissionError(NavigationError):
    """A mission cannot be carried out as written; one line per problem."""


class ConsoleError(NavigationError):
    """The console cannot be opened as configured."""


def one_line(text: str, most: int = LONGEST) -> str:
    """Return foreign words without line breaks and control characters, cut to a fair length."""
    words = " ".join(text[: 4 * most].split())
    return "".join(c if c.isprintable() else "?" for c in words)[:most]
