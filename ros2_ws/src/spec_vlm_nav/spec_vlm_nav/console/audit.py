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

"""Every command of every page, a JSON line each: who, from where, what, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
import json
from pathlib import Path
import time

LONGEST = 400


class Audit:
    """Appends to a file; when that fails, `complain` is told once and the robot's work goes on."""

    def __init__(self, file: Path, complain: Callable[[str], None]) -> None:
        self._file, self._complain, self._has_complained = file, complain, False

    def note(
        self, who: str, role: str, where: str, robot: str, command: str, outcome: str
    ) -> None:
        """Take note of a command."""
        line = {
            'at': time.strftime('%Y-%m-%dT%H:%M:%S%z'),
            'who': who,
            'role': role,
            'from': where,
            'robot': robot,
            'command': command[:LONGEST],
            'outcome': outcome[:LONGEST],
        }
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open('a', encoding='utf-8') as stream:
                stream.write(json.dumps(line, ensure_ascii=False) + '\n')
            self._has_complained = False
        except OSError as error:
            if not self._has_complained:
                self._complain(f'commands cannot be noted in {self._file}: {error}')
            self._has_complained = True
