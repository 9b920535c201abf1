# SPDX-License-Identifier: Apache-2.0
"""Pictures in messages: only data: URLs, so that no client can make this server fetch anything."""

from __future__ import annotations

import base64
import binascii
import re

from specnav.api.errors import ApiError, wrong

_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[^;,]*)*(;base64)?,", re.IGNORECASE)
_SHOWN = 60


def picture_of(url: str, param: str) -> bytes:
    """The JPEG or PNG in a data: URL. Raises ApiError that names param."""
    head = _DATA.match(url[:1000])
    if head is None:
        what = "is not an address" if ":" not in url else "is not fetched"
        raise wrong(
            param,
            f"{url[:_SHOWN]!r} {what}: send pictures in the request, as data:image/jpeg;base64,…",
            code="unsupported_image_url",
        )
    if not head[2]:
        raise _no_picture(param, "the picture is not in base64")
    try:
        # The command base64 breaks lines.
        content = base64.b64decode("".join(url[head.end() :].split()), validate=True)
    except (binascii.Error, ValueError):
        raise _no_picture(param, "the picture's base64 is broken") from None
    if not content.startswith((b"\xff\xd8\xff", b"\x89PNG")):
        raise _no_picture(param, "the picture is neither a JPEG nor a PNG")
    return content


def _no_picture(param: str, message: str) -> ApiError:
    return wrong(param, f"{message}: send it as data:image/jpeg;base64,… or data:image/png;base64,…", "invalid_image")
