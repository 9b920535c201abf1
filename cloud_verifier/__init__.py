# SPDX-License-Identifier: Apache-2.0
"""The cloud verifier: a server that holds the target model and answers drafts with verdicts.

It uses specdec's vocabulary and meets edges only on the wire; it imports nothing of the robot. `serve`, and torch with
it, is imported on first use: code that only reads or writes settings needs neither.
"""

from typing import TYPE_CHECKING, Any

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError

if TYPE_CHECKING:
    from cloud_verifier.serving import serve

__all__ = ["ServerConfig", "VerifierError", "serve"]


def __getattr__(name: str) -> Any:
    if name != "serve":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cloud_verifier.serving import serve

    return serve
