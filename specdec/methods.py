"""Methods as named combinations of the axes of METHODS.md; each axis is its own small part.

A name may override axes: "sd+tree:32x6" is sd with a token tree of 32 nodes and depth 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from specdec.drafting.tree import TreeSize
from specdec.errors import OptionsError
from specdec.sampling.recovery import Recovery

Cloud = Literal["stream", "verify"]
Overlap = Literal["idle", "continue", "stream"]

MAX_BUDGET = 1024
MAX_DEPTH = 64
STREAM_IN_FLIGHT = 3


@dataclass(frozen=True)
class Method:
    """A point in the space of methods.

    cloud: "stream" decodes alone and sends tokens as they come; "verify" waits for drafts of the edge.
    cloud_drafts: a streaming cloud uses a draft model of its own.
    tree: size of the token tree of a draft; None drafts a chain of gamma.
    recovery: NOISE sends ids only; the others are standard rejection sampling, by who recovers from a
    rejection and from what; recovery_size counts samples or entries. At temperature 0 ids suffice for all of
    them.
    overlap: what the edge does while a verdict is out: nothing ("idle"), draft on as if everything were
    accepted and send that in the next round ("continue"), or send it at once ("stream", up to in_flight
    drafts).
    """

    name: str
    summary: str
    cloud: Cloud
    cloud_drafts: bool = False
    tree: TreeSize | None = None
    recovery: Recovery = Recovery.NOISE
    recovery_size: int = 0
    overlap: Overlap = "idle"
    in_flight: int = 1

    @property
    def drafts(self) -> bool:
        """True where the edge needs a draft model."""
        return self.cloud == "verify"

    def recovery_at(self, temperature: float) -> Recovery:
        """The recovery at a temperature: greedy decoding rejects nothing by chance."""
        return self.recovery if temperature > 0.0 else Recovery.NOISE


METHODS = {
    method.name: method
    for method in (
        Method("ar", "the cloud decodes alone, with a KV cache, and streams tokens", "stream"),
        Method(
            "cloud-sd",
            "draft and target both in the cloud, which streams what it verified",
            "stream",
            cloud_drafts=True,
        ),
        Method("sd", "the edge drafts a chain and sends ids only; the cloud verifies", "verify"),
        Method("dsd", "ids and full q rows up; the cloud resamples", "verify", recovery=Recovery.CLOUD),
        Method("dssd", "ids and q(x) up; one row down on a rejection", "verify", recovery=Recovery.ROW),
        Method(
            "dssd-thin",
            "ids and q(x) up; samples of the target down on a rejection, exact",
            "verify",
            recovery=Recovery.SAMPLES,
            recovery_size=16,
        ),
    )
}


def get_method(name: str) -> Method:
    """A method by name, with axes overridden as the name says. Raises OptionsError with the choices."""
    base, *overrides = name.split("+")
    if base not in METHODS:
        raise OptionsError(f"method {base!r} is unknown: choose one of {', '.join(METHODS)}")
    method = METHODS[base]
    for override in overrides:
        axis, _, value = override.partition(":")
        if axis not in AXES:
            raise OptionsError(
                f"axis {axis!r} of method {name!r} is unknown: choose one of {', '.join(AXES)}"
            )
        if not method.drafts:
            raise OptionsError(f"method {base!r} drafts nothing: it has no axis {axis!r}")
        method = AXES[axis](method, value)
    if method.overlap != "idle" and (method.tree is not None or method.recovery is not Recovery.NOISE):
        raise OptionsError(f"method {name!r}: overlap goes with chains and ids only")
    if method.tree is not None and method.recovery is not Recovery.NOISE:
        raise OptionsError(
            f"method {name!r}: token trees go with shared noise, so with a method that sends ids only"
        )
    return replace(method, name=name) if overrides else method


def _with_tree(method: Method, value: str) -> Method:
    try:
        budget, depth = (int(part) for part in value.split("x"))
    except ValueError:
        raise OptionsError(f"tree size {value!r} is not BUDGETxDEPTH, like 32x6") from None
    if not 1 <= depth <= MAX_DEPTH or not depth <= budget <= MAX_BUDGET:
        raise OptionsError(
            f"tree size {value!r} is out of range: depth 1 to {MAX_DEPTH}, budget from depth to {MAX_BUDGET}"
        )
    return replace(method, tree=TreeSize(budget, depth))


def _with_overlap(method: Method, value: str) -> Method:
    if value == "idle":
        return replace(method, overlap="idle", in_flight=1)
    if value == "continue":
        return replace(method, overlap="continue", in_flight=1)
    if value == "stream":
        return replace(method, overlap="stream", in_flight=STREAM_IN_FLIGHT)
    raise OptionsError(f"overlap {value!r} is unknown: choose idle, continue or stream")


AXES: dict[str, Callable[[Method, str], Method]] = {"tree": _with_tree, "overlap": _with_overlap}
