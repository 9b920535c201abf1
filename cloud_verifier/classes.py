# SPDX-License-Identifier: Apache-2.0
"""Classes of clients: whose work comes first where not all of it can be done at once."""

from __future__ import annotations

from enum import Enum

from cloud_verifier.errors import VerifierError


class ClientClass(str, Enum):
    """A robot that stands until it hears comes before a person who waits, and a person before a run without one."""

    ROBOT = "robot"
    INTERACTIVE = "interactive"
    BATCH = "batch"

    @property
    def rank(self) -> int:
        """0 comes first."""
        return list(ClientClass).index(self)


def class_named(name: str) -> ClientClass:
    """The class of a name. Raises VerifierError for a class that does not exist."""
    try:
        return ClientClass(name)
    except ValueError:
        known = ", ".join(one.value for one in ClientClass)
        raise VerifierError(f"class {name!r} does not exist: choose {known}") from None
