# SPDX-License-Identifier: Apache-2.0
"""Client classes: whose work comes first when the verifier cannot do everything at once."""

from __future__ import annotations

from enum import Enum

from cloud_verifier.errors import VerifierError


class ClientClass(str, Enum):
    """A robot that stands still until it gets an answer comes first, then a waiting person, then unattended runs."""

    ROBOT = "robot"
    INTERACTIVE = "interactive"
    BATCH = "batch"

    @property
    def rank(self) -> int:
        """0 comes first."""
        return list(ClientClass).index(self)


def class_named(name: str) -> ClientClass:
    """The class with this name. Raises VerifierError for an unknown name."""
    try:
        return ClientClass(name)
    except ValueError:
        known = ", ".join(one.value for one in ClientClass)
        raise VerifierError(f"class {name!r} does not exist: choose {known}") from None
