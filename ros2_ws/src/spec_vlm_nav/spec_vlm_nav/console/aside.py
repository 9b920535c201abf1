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
Parses a mission in a separate process with limits of time and memory.

Missions are parsed one at a time, so that the console stays responsive. As a program, this module
reads a mission from standard input and writes the result as one line of JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
import json
import resource
import sys

CPU_S, LIMIT_S, MEMORY_BYTES = 5, 20.0, 1 << 30
MOST_WAITING = 8
_turns: dict[asyncio.AbstractEventLoop, tuple[asyncio.Lock, set[asyncio.Task[None]]]] = {}


def read_aside(text: str, told: Callable[[int, str], None]) -> None:
    """Parse a mission; told: called later in the running event loop with steps and error."""
    loop = asyncio.get_running_loop()
    turn, waiting = _turns.setdefault(loop, (asyncio.Lock(), set()))
    if len(waiting) >= MOST_WAITING:
        told(0, "too many missions are being read: wait a moment")
        return
    task = loop.create_task(_read(text, told, turn))
    waiting.add(task)
    task.add_done_callback(waiting.discard)


async def _read(text: str, told: Callable[[int, str], None], turn: asyncio.Lock) -> None:
    async with turn:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(text.encode()), LIMIT_S)
            steps, wrong = json.loads(said)
        except asyncio.TimeoutError:
            steps, wrong = 0, f"the mission was not parsed within {LIMIT_S:g} s: make it shorter"
        except ValueError:
            steps, wrong = 0, "the mission cannot be read"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    told(steps, wrong)


def main() -> None:
    """Parse a mission from standard input."""
    from spec_vlm_nav.console.orders import read_at_once

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    text = sys.stdin.buffer.read().decode()
    read_at_once(text, lambda steps, wrong: print(json.dumps([steps, wrong])))


if __name__ == "__main__":
    main()
