"""Methods as named combinations of the axes of METHODS.md; each axis is its own small part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specdec.errors import OptionsError

Shape = Literal["none", "chain"]
Uplink = Literal["none", "ids"]


@dataclass(frozen=True)
class Method:
    """A point in the space of methods.

    shape: what a draft looks like; "none" means the cloud decodes alone and streams its tokens.
    uplink: what a round carries up.
    """

    name: str
    summary: str
    shape: Shape
    uplink: Uplink

    @property
    def drafts(self) -> bool:
        """True where the edge needs a draft model."""
        return self.shape != "none"


METHODS = {
    method.name: method
    for method in (
        Method("ar", "the cloud decodes alone, with a KV cache, and streams tokens", "none", "none"),
        Method("sd", "the edge drafts a chain and sends ids only; the cloud verifies", "chain", "ids"),
    )
}


def get_method(name: str) -> Method:
    """Look a method up by name. Raises OptionsError with the list of names."""
    try:
        return METHODS[name]
    except KeyError:
        raise OptionsError(f"method {name!r} is unknown: choose one of {', '.join(METHODS)}") from None
