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
Whether a decision that was begun early still holds.

The question is: does the camera show the same scene now as it did then?
"""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from spec_vlm_nav.camera.images import from_raw, RawImage
from spec_vlm_nav.common.errors import FrameError

THUMBNAIL = (56, 35)


def thumbnail(picture: bytes | RawImage) -> NDArray[np.float32]:
    """
    Return the picture small and grey, [35, 56] float32 of 0 to 255.

    Raises FrameError when it cannot be decoded.
    """
    if isinstance(picture, RawImage):
        image = from_raw(picture)
    else:
        try:
            image = Image.open(io.BytesIO(picture), formats=("JPEG", "PNG"))
            # A JPEG comes out at an eighth of its size for an eighth of the work.
            image.draft("L", THUMBNAIL)
            image.load()
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise FrameError(f"corrupt camera frame ({error})") from error
    small = image.convert("L").resize(THUMBNAIL, Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32)


def difference(one: bytes | RawImage, other: bytes | RawImage) -> float:
    """Mean difference of two pictures, grey levels of 255. Raises FrameError."""
    return float(np.abs(thumbnail(one) - thumbnail(other)).mean())


def same_scene(one: bytes | RawImage, other: bytes | RawImage, tolerance: float) -> bool:
    """
    Whether two pictures differ by no more than `tolerance` grey levels.

    False when one cannot be decoded.
    """
    try:
        return difference(one, other) <= tolerance
    except FrameError:
        return False
