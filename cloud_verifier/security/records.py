# SPDX-License-Identifier: Apache-2.0
"""What a key ring knows of a client: its name, its public key, its class and its quota. Nothing here is secret."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct, field

from cloud_verifier.classes import ClientClass
from cloud_verifier.errors import VerifierError
from cloud_verifier.limits import MEBIBYTE, Limits
from specdec.link.keys import Z85Key

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DEFAULT_CLASS = ClientClass.INTERACTIVE

Sessions = Annotated[int, Meta(ge=1, le=100_000)]
Rate = Annotated[float, Meta(ge=1, le=1_000_000)]
Megabytes = Annotated[float, Meta(ge=0.001, le=100_000)]


class Quota(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Bounds of one client instead of the server's; None: the server's.

    sessions: open at a time. messages_per_s: on average. queued_mb: of what waits for the engine.
    """

    sessions: Sessions | None = None
    messages_per_s: Rate | None = None
    queued_mb: Megabytes | None = None

    def within(self, limits: Limits) -> Limits:
        """The server's limits with the bounds that are given in their place."""
        if self.sessions is not None:
            limits = replace(limits, sessions=self.sessions)
        if (rate := self.messages_per_s) is not None:
            limits = replace(limits, messages_per_s=rate, burst=max(1, int(2 * rate)))
        if self.queued_mb is not None:
            limits = replace(limits, queued_bytes=max(1024, int(self.queued_mb * MEBIBYTE)))
        return limits


class Previous(Struct, frozen=True, forbid_unknown_fields=True):
    """The public key before a rotation, and until when it is still good."""

    public: Z85Key
    until: datetime


class ClientKey(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One client. revoked: since when it may not come in any more."""

    name: str
    public: Z85Key
    created: datetime
    client_class: ClientClass = field(default=DEFAULT_CLASS, name="class")
    quota: Quota = Quota()
    revoked: datetime | None = None
    previous: Previous | None = None


def check_name(name: str) -> str:
    """The name of a client. Raises VerifierError for one that could not be a file's."""
    if not NAME.fullmatch(name):
        raise VerifierError(f"name {name!r} is not usable: take up to 64 letters, digits, dots, _ and -")
    return name
