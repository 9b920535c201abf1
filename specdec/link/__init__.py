# SPDX-License-Identifier: Apache-2.0
"""The link between edge and cloud: wire contract, ZeroMQ channel, emulator of bad networks.

`Link` and `connect`, and ZeroMQ with them, are imported at first use: settings need only constants.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.link.channel import Link, connect

__all__ = ["Link", "connect"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from specdec.link import channel

    return getattr(channel, name)
