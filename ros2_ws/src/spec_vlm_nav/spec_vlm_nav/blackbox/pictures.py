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

"""Encodes raw camera pictures in a thread, one at a time; a newer one replaces a waiting one."""

from __future__ import annotations

from collections.abc import Callable

from spec_vlm_nav.common.errors import FrameError
from spec_vlm_nav.common.newest import NewestWorker


class PictureEncoder:
    """
    Encodes raw pictures at a bounded rate.

    encode: turns a camera message's bytes into those of a compressed one; may raise FrameError.
    put: called with the receive time and the result. warn: called with the error of a picture. All
    three are called from the thread.
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
        """Queue a raw picture unless it exceeds the rate; it replaces a waiting one."""
        # 10 % tolerance, so that jitter does not drop every second picture.
        if at - self._taken_at >= 0.9 / self.rate_hz:
            self._taken_at = at
            self._worker.put((at, data), at)

    def _keep(self, job: tuple[float, bytes]) -> None:
        at, data = job
        try:
            self._put(at, self._encode(data))
        except FrameError as error:
            self._warn(f"camera picture not kept: {error}")
        except Exception as error:  # the bytes are not a picture message
            self._warn(f"camera picture not kept: {type(error).__name__}: {error}")
