# SPDX-License-Identifier: Apache-2.0
"""The record of a client in a key ring: name, public key, class and quota. Nothing here is secret."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct, field

from cloud_verifier.classes import ClientClass
from cloud_verifier.errors import VerifierError
from cloud_verifier.limits import MEBIBYTE, Limits
from specdec.link.keys import Z85Key, check_key

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DEFAULT_CLASS = ClientClass.INTERACTIVE

Sessions = Annotated[int, Meta(ge=1, le=100_000)]
Rate = Annotated[float, Meta(ge=1, le=1_000_000)]
Megabytes = Annotated[float, Meta(ge=0.001, le=100_000)]


class Quota(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A client's own bounds, which replace the server's; None: the server's bound applies.

    sessions: most open at a time. messages_per_s: average rate. queued_mb: size of messages that wait for the engine.
    """

    sessions: Sessions | None = None
    messages_per_s: Rate | None = None
    queued_mb: Megabytes | None = None

    def within(self, limits: Limits) -> Limits:
        """The server's limits, with this quota's bounds in their place."""
        if self.sessions is not None:
            limits = replace(limits, sessions=self.sessions)
        if (rate := self.messages_per_s) is not None:
            limits = replace(limits, messages_per_s=rate, burst=max(1, int(2 * rate)))
        if self.queued_mb is not None:
            limits = replace(limits, queued_bytes=max(1024, int(self.queued_mb * MEBIBYTE)))
        return limits


class Previous(Struct, frozen=True, forbid_unknown_fields=True):
    """The public key before a rotation, and until when it stays valid."""

    public: Z85Key
    until: datetime

    def __post_init__(self) -> None:
        check_key(self.public)


class ClientKey(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One client. revoked: since when its key is revoked."""

    name: str
    public: Z85Key
    created: datetime
    client_class: ClientClass = field(default=DEFAULT_CLASS, name="class")
    quota: Quota = Quota()
    revoked: datetime | None = None
    previous: Previous | None = None

    def __post_init__(self) -> None:
        check_key(self.public)


def check_name(name: str) -> str:
    """Check a client's name and return it. Raises VerifierError if it cannot be a file name."""
    if not NAME.fullmatch(name):
        raise VerifierError(f"name {name!r} is not usable: use up to 64 letters, digits, dots, _ and -")
    return name
