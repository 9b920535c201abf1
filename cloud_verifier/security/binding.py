# SPDX-License-Identifier: Apache-2.0
"""Where a verifier may listen without keys: on this machine only, unless configured otherwise."""

from __future__ import annotations

from cloud_verifier.errors import VerifierError
from specdec.link.binding import is_loopback


def check_binding(bind: str, keys: str, insecure: bool) -> None:
    """Raise VerifierError for a bind beyond this machine that neither has keys nor was said to need none."""
    if keys and insecure:
        raise VerifierError("keys and insecure exclude each other: leave one of them out")
    if not keys and not insecure and not is_loopback(bind):
        raise VerifierError(
            f"{bind} is open to other machines and there are no keys: give --keys FOLDER (specnav keys new NAME makes "
            "one), or say --insecure if every host may listen in and use it"
        )
