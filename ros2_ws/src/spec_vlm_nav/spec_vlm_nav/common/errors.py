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
The exceptions of the robot package.

The message of each is one line that says what was wrong and what to do about it.
"""


class NavigationError(Exception):
    """Base of everything the robot package raises for its users."""


class InstructionError(NavigationError):
    """The instruction cannot be used (empty, too long)."""


class FrameError(NavigationError):
    """A camera message cannot be turned into an image."""


class PromptError(NavigationError):
    """A prompt specification is wrong or does not fit the model."""


class ParameterError(NavigationError):
    """A parameter has a value outside its range."""


class BackendError(NavigationError):
    """The motion back-end asked for cannot be used here."""


class CameraError(NavigationError):
    """The video source asked for cannot be used here."""


class BlackboxError(NavigationError):
    """The black box cannot be used as it was asked to."""


class RobotError(NavigationError):
    """The robot cannot be heard: its messages are not known here."""


class MissionError(NavigationError):
    """A mission cannot be carried out as it was asked for; several lines: several things."""


class ConsoleError(NavigationError):
    """The console cannot be opened as it was asked for."""
