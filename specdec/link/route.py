# SPDX-License-Identifier: Apache-2.0
"""Where a link connects: always to the same verifier, or to whichever a fleet's directory names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Whether = Callable[[], bool]


class VerifierRoute(Protocol):
    """Asked by a link before it connects, and told what became of it."""

    def next(self, deadline: float, give_up: Whether) -> str:
        """The verifier to connect to, tcp://HOST:PORT. May wait until `deadline`, of the link's clock, or until
        give_up says True. Raises LinkLost where no verifier answers, VerifierBusy where none is there, KeyRefused,
        VersionMismatch.
        """
        ...

    def failed(self, address: str) -> bool:
        """That verifier did not serve; False where no other is to be had."""
        ...

    def begin(self, ids: Sequence[int], images: Sequence[bytes]) -> bool:
        """An answer to this prompt begins; True where another verifier than before is to give it."""
        ...

    def rest(self) -> None:
        """It is over."""
        ...

    def close(self) -> None:
        """The link is closed for good."""
        ...


class FixedRoute:
    """A route that leads to one address."""

    def __init__(self, address: str) -> None:
        self._address = address

    def next(self, deadline: float, give_up: Whether) -> str:
        """That address."""
        return self._address

    def failed(self, address: str) -> bool:
        """There is no other."""
        return False

    def begin(self, ids: Sequence[int], images: Sequence[bytes]) -> bool:
        """Always the same one."""
        return False

    def rest(self) -> None:
        """No caller asks."""

    def close(self) -> None:
        """Nothing is held."""
