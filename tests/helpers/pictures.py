"""Pictures of given sizes, in pixels and in bytes."""

from __future__ import annotations

import io

from PIL import Image


def png(width: int, height: int, padding: int = 0) -> bytes:
    """A picture, and bytes behind it that nothing looks at."""
    buffer = io.BytesIO()
    Image.new("1", (width, height)).save(buffer, format="PNG")
    return buffer.getvalue() + b"\0" * padding
