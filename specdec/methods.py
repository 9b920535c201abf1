# SPDX-License-Identifier: Apache-2.0
"""Methods: named combinations of the axes in docs/axes.md.

A name may override axes: "sd+tree:32x6" is sd with a token tree of 32 nodes and depth 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from specdec.draft import TreeSize
from specdec.drafting.length import LENGTHS
from specdec.drafting.outcomes import ORDERS, Order
from specdec.drafting.triggers import make_trigger
from specdec.errors import OptionsError
from specdec.sampling.recoveries import Recovery

Cloud = Literal["stream", "verify", "split"]
Overlap = Literal["idle", "continue", "stream", "hinted-stream", "hints", "guesses", "outcomes"]
Leave = Literal["whole", "tokens", "plan"]
HintOrder = Literal["priority", "fifo"]
Nodes = Literal["all", "paid"]
DrafterName = Literal["model", "ngram", "both"]
DRAFTERS: tuple[DrafterName, ...] = get_args(DrafterName)
NODES: tuple[Nodes, ...] = get_args(Nodes)
HINT_ORDERS: tuple[HintOrder, ...] = get_args(HintOrder)
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
LEAVES: tuple[Leave, ...] = get_args(Leave)
_PREDRAFTS: tuple[Overlap, ...] = ("hints", "guesses", "outcomes")
_STREAMS: tuple[Overlap, ...] = ("stream", "hinted-stream")

MAX_BUDGET = 1024
MAX_DEPTH = 64
MAX_RECOVERY_SIZE = 65_536
MAX_FRONT_LAYERS = 1024
MAX_ROWS = 64
ROWS = 6
STREAM_IN_FLIGHT = 3
SAMPLES = 16
SPARSE_ENTRIES = 64


@dataclass(frozen=True)
class Method:
    """One value on each axis; docs/axes.md describes the values.

    Attributes:
        name: Name in METHODS, with overrides.
        summary: One line for help and reports.
        cloud: "stream" decodes alone and sends tokens as they come; "verify" waits for drafts from the edge; "split"
            runs the upper layers on the hidden states of the edge's layers.
        cloud_drafts: A streaming cloud uses its own draft model.
        drafter: What drafts on the edge: the draft model ("model"), an n-gram lookup without a model ("ngram"), or the
            better of the two in each round ("both").
        tree: Size of the token tree of a draft; None drafts a chain of gamma tokens.
        nodes: Send all nodes of the tree ("all"), or only those that gain more than their rows cost ("paid").
        recovery: NOISE sends ids only. The others are standard rejection sampling; they differ in which side draws the
            recovered token, and from what. At temperature 0 all of them send ids only.
        recovery_size: Number of samples or entries, for values of `recovery` that have a size.
        overlap: What the edge does while it waits for a verdict. "idle": nothing. "continue": draft on as if everything
            were accepted, and send that in the next round. "stream": the same, but send at once, up to `in_flight`
            drafts. "hinted-stream": the same, but if an early exit contradicts a draft in flight, draft what the exit
            expects instead. Otherwise prepare drafts for several possible verdicts: those that early exits hint at
            ("hints"), those that the draft model finds likely ("guesses"), or both ("outcomes").
        in_flight: Most drafts in flight at a time.
        rows: How many possible verdicts share a forward pass while drafts are prepared (FSD's hint threads).
        order: Which possible verdicts are prepared for first.
        hint_order: Which hints the cloud sends first.
        controlled: A controller changes the axes during an answer (specdec.edge.controller).
        leave: "whole" sends a draft once it is complete. "tokens" sends its first token at once if the cloud is idle
            and will have judged it before the others are drafted. "plan" sends its tokens in parts while it is drafted,
            if uploads are so slow that this makes them end earlier (specdec.drafting.uploads).
        length: How long drafts are: a policy (specdec.drafting.length) or a trigger (specdec.drafting.triggers), like
            "token:0.7".
        front_layers: Layers of the target that run on the edge, with "split"; 0: a quarter of them.
    """

    name: str
    summary: str
    cloud: Cloud
    cloud_drafts: bool = False
    drafter: DrafterName = "model"
    tree: TreeSize | None = None
    nodes: Nodes = "all"
    recovery: Recovery = Recovery.NOISE
    recovery_size: int = 0
    overlap: Overlap = "idle"
    in_flight: int = 1
    leave: Leave = "whole"
    length: str = "fixed"
    front_layers: int = 0
    rows: int = ROWS
    order: Order = "priority"
    hint_order: HintOrder = "priority"
    controlled: bool = False

    @property
    def drafts(self) -> bool:
        """True if the edge drafts."""
        return self.cloud == "verify"

    @property
    def needs_draft_model(self) -> bool:
        """True if the edge needs a draft model."""
        return self.drafts and self.drafter != "ngram"

    @property
    def split(self) -> bool:
        """True if the edge needs the target model, for its first layers."""
        return self.cloud == "split"

    @property
    def lossy(self) -> bool:
        """True if sampled answers do not follow the target's distribution, as published."""
        return self.recovery is Recovery.TRUNCATED

    @property
    def predrafts(self) -> bool:
        """True if the edge prepares drafts for several verdicts while one is awaited."""
        return self.overlap in _PREDRAFTS

    @property
    def hints(self) -> int:
        """How many hints per round are useful."""
        return 2 * self.rows if self.overlap in ("hinted-stream", "hints", "outcomes") else 0

    @property
    def ahead(self) -> bool:
        """True if a draft may continue an earlier draft whose verdict is not known yet."""
        goes_on = self.overlap in ("continue", *_STREAMS) or self.leave == "tokens"
        return self.tree is None and goes_on

    def recovery_at(self, temperature: float) -> Recovery:
        """The recovery to use at a temperature; NOISE at 0, since greedy decoding never rejects at random."""
        return self.recovery if temperature > 0.0 else Recovery.NOISE


_PICOSPEC = Method(
    "picospec",
    "several drafts in flight, verified as they arrive; ids and q(x) up, part of a row down, exact",
    "verify",
    recovery=Recovery.SPARSE,
    recovery_size=SPARSE_ENTRIES,
    overlap="stream",
    in_flight=STREAM_IN_FLIGHT,
    leave="tokens",
    length="latency",
)

METHODS = {
    method.name: method
    for method in (
        Method("ar", "the cloud decodes alone, with a KV cache, and streams tokens", "stream"),
        Method(
            "cloud-sd",
            "draft and target both in the cloud, which streams verified tokens",
            "stream",
            cloud_drafts=True,
        ),
        Method("split", "the target's first layers on the edge, the rest in the cloud", "split"),
        Method("sd", "the edge drafts a chain and sends ids only; the cloud verifies", "verify"),
        Method("dsd", "ids and full q rows up; the cloud resamples", "verify", recovery=Recovery.CLOUD),
        Method("dssd", "ids and q(x) up; one row down on a rejection", "verify", recovery=Recovery.ROW),
        Method(
            "dssd-thin",
            "ids and q(x) up; samples of the target down on a rejection, exact",
            "verify",
            recovery=Recovery.SAMPLES,
            recovery_size=SAMPLES,
        ),
        _PICOSPEC,
        replace(
            _PICOSPEC,
            name="picospec-lossy",
            summary="picospec as published: the row's tail is cut off, so sampling is NOT exact",
            recovery=Recovery.TRUNCATED,
        ),
        Method(
            "fsd",
            "prepares drafts for the likely verdicts while one is awaited, from early-exit hints and its own guesses",
            "verify",
            overlap="outcomes",
        ),
        Method(
            "auto",
            "measures and chooses continuously: the cloud alone, lookups, chains, trees, several drafts in flight",
            "verify",
            overlap="outcomes",
            nodes="paid",
            controlled=True,
        ),
        Method(
            "ngram",
            "no draft model: looks up what followed the same tokens before and sends ids; the cloud verifies",
            "verify",
            drafter="ngram",
        ),
        Method(
            "specedge",
            "a token tree, grown further below its likeliest leaf while the verdict is awaited",
            "verify",
            tree=TreeSize(32, 6),
            overlap="continue",
            length="pipeline",
        ),
        Method("hsl", "a chain is sent once its last token is doubtful", "verify", length="token:0.7"),
        Method(
            "edgellm",
            "a chain is sent once it is doubtful as a whole; the threshold adapts to acceptance",
            "verify",
            length="sequence:moving",
        ),
        Method(
            "pipesd",
            "a chain is sent once it or its last token is doubtful; drafting continues while the verdict is awaited",
            "verify",
            overlap="continue",
            leave="plan",
            length="dual:0.5/0.3",
        ),
    )
}


def get_method(name: str) -> Method:
    """Look up a method, with axes overridden as the name says.

    Args:
        name: A name of `METHODS`, followed by overrides, for example "sd+length:token:0.7".

    Returns:
        The method.

    Raises:
        OptionsError: Unknown method, axis or value; the message lists the choices.
    """
    base, *overrides = name.split("+")
    if base not in METHODS:
        raise OptionsError(f"method {base!r} is unknown: choose one of {', '.join(METHODS)}")
    method = METHODS[base]
    if method.controlled and overrides:
        raise OptionsError(f"method {base!r} chooses its axes itself: leave {', '.join(overrides)} out")
    for override in overrides:
        axis, _, value = override.partition(":")
        if axis not in AXES:
            raise OptionsError(
                f"axis {axis!r} of method {name!r} is unknown: choose one of {', '.join(AXES)}"
            )
        if method.split != (axis == "layers") or not (method.drafts or method.split):
            raise OptionsError(f"method {base!r} has no axis {axis!r}")
        method = AXES[axis](method, value)
    if method.tree is not None and (method.overlap in _STREAMS or method.leave != "whole"):
        raise OptionsError(
            f"method {name!r}: token trees are sent whole and one at a time; overlap:continue grows them further"
        )
    if method.predrafts and (method.leave != "whole" or method.recovery is not Recovery.NOISE):
        raise OptionsError(
            f"method {name!r}: overlap:{method.overlap} requires whole drafts and shared noise (ids only)"
        )
    if method.overlap == "hinted-stream" and method.recovery is not Recovery.NOISE:
        raise OptionsError(f"method {name!r}: overlap:hinted-stream requires shared noise (ids only)")
    if method.drafter != "model" and (
        method.tree is not None or method.hints or method.predrafts or method.recovery is not Recovery.NOISE
    ):
        raise OptionsError(
            f"method {name!r}: drafter:{method.drafter} drafts chains and sends ids only, "
            f"like sd+drafter:{method.drafter}"
        )
    if method.drafter == "both" and (method.overlap != "idle" or method.leave == "tokens"):
        raise OptionsError(
            f"method {name!r}: drafter:both learns from verdicts, so drafts are sent whole and one at a time"
        )
    if method.leave == "plan" and method.drafter != "model":
        raise OptionsError(
            f"method {name!r}: leave:plan requires a draft model, like dsd+leave:plan"
        )
    if method.length == "marginal" and not method.predrafts:
        raise OptionsError(
            f"method {name!r}: length:marginal requires overlap:outcomes, hints or guesses, like fsd+length:marginal"
        )
    asks_chances = (
        (method.length == "worth" and not method.predrafts) or make_trigger(method.length) is not None
    )
    if method.tree is not None and asks_chances:
        raise OptionsError(
            f"method {name!r}: length:{method.length} requires chains, like sd+length:{method.length}"
        )
    if method.nodes == "paid" and method.tree is None and not method.controlled:
        raise OptionsError(f"method {name!r}: nodes:paid requires a token tree, like sd+tree:32x6+nodes:paid")
    if method.tree is not None and method.recovery is not Recovery.NOISE:
        raise OptionsError(
            f"method {name!r}: token trees require shared noise, that is, a method that sends ids only"
        )
    return replace(method, name=name) if overrides else method


def with_axes(
    name: str, length: str | None = None, payload: str | None = None, resample: str | None = None
) -> str:
    """Add axes to a method's name. A method that does not draft on the edge is returned unchanged.

    Args:
        name: The method; an axis that it sets already stays.
        length: Value of the axis `length`; None: unchanged.
        payload: Value of the axis `payload`; None: unchanged.
        resample: Value of the axis `resample`; None: unchanged.

    Returns:
        The name with its axes, as `get_method` takes it.

    Raises:
        OptionsError: Unknown method or value.
    """
    asked = {"resample": resample, "payload": payload, "length": length}
    if not get_method(name).drafts or get_method(name).controlled:
        return name
    for axis, value in asked.items():
        if value is not None and f"+{axis}:" not in name:
            name += f"+{axis}:{value}"
    get_method(name)
    return name


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


def _with_nodes(method: Method, value: str) -> Method:
    if value not in NODES:
        raise OptionsError(f"nodes {value!r} are unknown: choose {' or '.join(NODES)}")
    return replace(method, nodes=value)


def _with_drafter(method: Method, value: str) -> Method:
    if value not in DRAFTERS:
        raise OptionsError(f"drafter {value!r} is unknown: choose one of {', '.join(DRAFTERS)}")
    return replace(method, drafter=value)


def _with_overlap(method: Method, value: str) -> Method:
    if value not in OVERLAPS:
        raise OptionsError(f"overlap {value!r} is unknown: choose {', '.join(OVERLAPS)}")
    in_flight = STREAM_IN_FLIGHT if value in _STREAMS else 1
    if method.leave == "tokens" and value in ("idle", "continue"):
        in_flight = 2
    return replace(method, overlap=value, in_flight=in_flight)


def _with_rows(method: Method, value: str) -> Method:
    if not value.isdecimal() or int(value) > MAX_ROWS:
        raise OptionsError(
            f"rows {value!r} is wrong: give how many verdicts to prepare for at once, 0 to {MAX_ROWS}"
        )
    return replace(method, rows=int(value))


def _with_queues(method: Method, value: str) -> Method:
    order, _, told = value.partition("/")
    hint_order = told or "priority"
    if order not in ORDERS or hint_order not in HINT_ORDERS:
        raise OptionsError(
            f"queues {value!r} are unknown: choose EDGE/CLOUD of {', '.join(ORDERS)} and {', '.join(HINT_ORDERS)}"
        )
    return replace(method, order=order, hint_order=hint_order)


def _with_leave(method: Method, value: str) -> Method:
    if value not in LEAVES:
        raise OptionsError(f"leave {value!r} is unknown: choose whole, tokens or plan")
    in_flight = method.in_flight if method.overlap in _STREAMS else 1
    if value == "tokens":
        in_flight = max(2, method.in_flight)
    return replace(method, leave=value, in_flight=in_flight)


def _with_length(method: Method, value: str) -> Method:
    value = _FORMER_LENGTHS.get(value, value)
    try:
        known = value in LENGTHS or make_trigger(value) is not None
    except ValueError as error:
        raise OptionsError(f"length {value!r}: {error}") from None
    if not known:
        raise OptionsError(
            f"length {value!r} is unknown: choose one of {', '.join(LENGTHS)}, "
            "token:R2, sequence:R1, dual:R1/R2, sequence:moving, or token, sequence or dual:learned"
        )
    return replace(method, length=value)


_FORMER_LENGTHS = {"earning": "marginal"}
"""Former names, which scripts may still use."""

_PAYLOADS = {"ids": Recovery.NOISE, "scalars": Recovery.ROW, "rows": Recovery.CLOUD}
_RESAMPLES = {
    "noise": (Recovery.NOISE, 0),
    "cloud": (Recovery.CLOUD, 0),
    "row": (Recovery.ROW, 0),
    "samples": (Recovery.SAMPLES, SAMPLES),
    "sparse": (Recovery.SPARSE, SPARSE_ENTRIES),
    "truncated": (Recovery.TRUNCATED, SPARSE_ENTRIES),
}


def _payload(recovery: Recovery) -> str:
    """The value of the axis `payload` that belongs to a recovery."""
    return {Recovery.NOISE: "ids", Recovery.CLOUD: "rows"}.get(recovery, "scalars")


def _with_payload(method: Method, value: str) -> Method:
    """Payload and resampling depend on each other; a payload alone selects the simplest recovery that uses it."""
    if value not in _PAYLOADS:
        raise OptionsError(f"payload {value!r} is unknown: choose one of {', '.join(_PAYLOADS)}")
    if _payload(method.recovery) == value:
        return method
    return replace(method, recovery=_PAYLOADS[value], recovery_size=0)


def _with_resample(method: Method, value: str) -> Method:
    name, _, size = value.partition(":")
    if name not in _RESAMPLES:
        raise OptionsError(f"resample {value!r} is unknown: choose one of {', '.join(_RESAMPLES)}")
    recovery, default = _RESAMPLES[name]
    if size and (not default or not size.isdecimal() or not 1 <= int(size) <= MAX_RECOVERY_SIZE):
        raise OptionsError(
            f"resample {value!r} is wrong: only samples, sparse and truncated take a size, like sparse:64"
        )
    return replace(method, recovery=recovery, recovery_size=int(size) if size else default)


def _with_layers(method: Method, value: str) -> Method:
    if not value.isdecimal() or not 1 <= int(value) <= MAX_FRONT_LAYERS:
        raise OptionsError(f"layers {value!r} is wrong: give how many layers the edge runs, like layers:2")
    return replace(method, front_layers=int(value))


AXES: dict[str, Callable[[Method, str], Method]] = {
    "tree": _with_tree,
    "overlap": _with_overlap,
    "leave": _with_leave,
    "length": _with_length,
    "payload": _with_payload,
    "resample": _with_resample,
    "layers": _with_layers,
    "rows": _with_rows,
    "queues": _with_queues,
    "nodes": _with_nodes,
    "drafter": _with_drafter,
}
