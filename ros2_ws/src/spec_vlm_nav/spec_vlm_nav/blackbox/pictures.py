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

"""Encodes pictures of a raw camera in a thread, one at a time; a newer one replaces the one that waits."""

from __future__ import annotations

from collections.abc import Callable

from spec_vlm_nav.common.errors import FrameError
from spec_vlm_nav.common.newest import NewestWorker


class PictureEncoder:
    """
    Takes raw pictures at a bounded rate.

    encode: a camera message's bytes to those of a compressed one, may raise FrameError; put: is
    given the receive time and the result; warn: is given what was wrong with a picture. All three
    are called by the thread.
    """

    def __init__(
        self,
        encode: Callable[[bytes], bytes],
        put: Callable[[float, bytes], None],
        warn: Callable[[str], None],
        rate_hz: float,
    ) -> None:
        self._encode, self._put, self._warn = encode, put, warn
        self.rate_hz = rate_hz
        self._taken_at = -1e18
        self._worker: NewestWorker[tuple[float, bytes], None] = NewestWorker(
            self._keep, lambda: None, "blackbox encoder"
        )
        self.close = self._worker.close

    def offer(self, at: float, data: bytes) -> None:
        """Take a raw picture unless it comes too soon; it replaces one that still waits."""
        # A little early is right on time: jitter is not to cost every second picture.
        if at - self._taken_at >= 0.9 / self.rate_hz:
            self._taken_at = at
            self._worker.put((at, data), at)

    def _keep(self, job: tuple[float, bytes]) -> None:
        at, data = job
        try:
            self._put(at, self._encode(data))
        except FrameError as error:
            self._warn(f"camera picture not kept: {error}")
        except Exception as error:  # bytes that are not a picture at all
            self._warn(f"camera picture not kept: {type(error).__name__}: {error}")
