# SPDX-License-Identifier: Apache-2.0
"""Plans: work on sessions as generators that yield what they need and receive the result.

A plan yields the rows it needs from the next forward pass (an Extension) or the prompt it needs prepared (a
Preparation), and continues with the result. So request and use of a result are in one function, and the runner of the
plans decides when each is served. `carry_out` runs a single plan; an engine runs many concurrently and batches their
rows in one forward pass.

A `planned` method has both forms: `verifier.verify(draft)` runs at once, and `verifier.verify.plan(draft)` returns the
plan, for an engine or as a part (`yield from`) of a larger plan.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from specdec.errors import ModelError
from specdec.isolation.workers import Ticket
from specdec.models.attention.segment import Segment
from specdec.models.images import PreparedImages, SeenPicture
from specdec.models.prompt import EncodedPrompt, Prompt
from specdec.models.runner import DecoderRunner, LayerObserver
from specdec.models.static import ChainRun

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


class Extensible(Protocol):
    """The part of a session that a forward pass needs; implemented by ModelSession."""

    runner: DecoderRunner
    layers: range | None

    def room_for(self, extension: Extension) -> Segment:
        """Make room for an extension; returns where its rows go."""
        ...

    def hold(self, extension: Extension) -> None:
        """Record the tokens that a forward pass has added."""
        ...


class PromptModel(Protocol):
    """The part of a model that prepares prompts; implemented by LoadedModel."""

    runner: DecoderRunner

    def encode(self, prompt: Prompt, seen: Sequence[SeenPicture] | None = None) -> EncodedPrompt:
        """Encode a prompt for this model."""
        ...

    def decode(self, image: bytes) -> PreparedImages:
        """Decode and prepare a picture for the vision tower."""
        ...

    def open_soon(self, image: bytes) -> Ticket[Image.Image] | None:
        """Open a picture in a worker, for `decode_opened`; None if `decode` does all the work."""
        ...

    def decode_opened(self, image: Image.Image) -> PreparedImages:
        """Prepare an opened picture for the vision tower."""
        ...

    def look(self, pictures: Sequence[PreparedImages]) -> list[SeenPicture]:
        """Encode pictures with the vision tower."""
        ...

    def prompt_length(self, prompt: Prompt) -> int:
        """How many tokens a prompt takes; images are counted from their headers."""
        ...

    def embed_prompt(self, encoded: EncodedPrompt) -> Tensor:
        """Embeddings [n, hidden_size] of a prompt."""
        ...


@dataclass(frozen=True)
class Extension:
    """What one session appends in a forward pass: a chain, tree nodes, or rows of its prompt.

    Attributes:
        session: The session.
        ids: Token id of each row.
        parents: Parent of each tree node; None: a chain.
        last_only: Compute only the last row's logits.
        hidden: Rows [n, hidden_size] to use instead of the embeddings of `ids`, which are then ignored.
        observer: Called with this session's rows after each layer.
        device_ids: int64 [rows] to use instead of `ids`, when the host has not read them.
        run: Also predict a chain after these rows and return its ids (`StaticForward.chain`) if possible; otherwise the
            logits are returned.
    """

    session: Extensible
    ids: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None
    last_only: bool = False
    hidden: Tensor | None = None
    observer: LayerObserver | None = None
    device_ids: Tensor | None = None
    run: ChainRun | None = None

    @property
    def more(self) -> int:
        """Tokens that the session will hold after these rows."""
        return 0 if self.run is None else self.run.count - 1

    @property
    def rows(self) -> int:
        """Number of rows in the forward pass."""
        return len(self.ids) if self.hidden is None else self.hidden.shape[0]

    @property
    def together_with(self) -> tuple[int, range | None]:
        """Key for batching: extensions with equal keys may share a forward pass."""
        return id(self.session.runner), self.session.layers

    @property
    def divisible(self) -> bool:
        """Whether it may be split over several passes: only the last row's logits are needed."""
        return self.last_only and self.parents is None and self.rows > 1 and self.observer is None

    def divide(self, rows: int) -> tuple[Extension, Extension]:
        """Split into the first `rows` rows and the others, without the observer, which needs all rows at once."""
        whole = replace(self, observer=None)
        if self.hidden is not None:
            return replace(whole, hidden=self.hidden[:rows]), replace(whole, hidden=self.hidden[rows:])
        first, others = replace(whole, ids=self.ids[:rows]), replace(whole, ids=self.ids[rows:])
        if self.parents is not None:  # parents are tree indices, which do not change by the split
            first, others = (
                replace(first, parents=self.parents[:rows]),
                replace(others, parents=self.parents[rows:]),
            )
        return first, others


@dataclass(frozen=True)
class Preparation:
    """A prompt to encode and embed, pictures included. The result is a Prepared."""

    model: PromptModel
    prompt: Prompt
    embed: bool = True

    def carry_out(self, seen: Sequence[SeenPicture] | None = None) -> Prepared:
        """Prepare the prompt now. Raises ModelError for a prompt that the model cannot take.

        seen: results of the vision tower for the prompt's pictures, if they exist already.
        """
        encoded = self.model.encode(self.prompt, seen)
        return Prepared(encoded, self.model.embed_prompt(encoded) if self.embed else None)


class KnownPrefix(Protocol):
    """A source of cached keys and values for a prompt's prefix, which also stores new ones.

    Caches are [layers, 2, kv_heads, capacity, head_dim].
    """

    def fill(self, cache: Tensor) -> int:
        """Write the known keys and values of the prompt's first tokens, at most all but the last; returns how many
        tokens.
        """
        ...

    def learn(self, cache: Tensor) -> None:
        """Called when the cache holds exactly the whole prompt."""
        ...


@dataclass(frozen=True)
class Prepared:
    """A prompt prepared for a model.

    encoded: ids, positions and pictures. hidden: embeddings [n, hidden_size], if requested. prefix: cached keys and
    values; None: none. kept: how many of its first tokens are in the session's cache already.
    """

    encoded: EncodedPrompt
    hidden: Tensor | None = None
    prefix: KnownPrefix | None = None
    kept: int = 0


@dataclass(frozen=True)
class AwaitedWorker:
    """A worker's job (specdec.isolation). The plan continues once it is done, and reads the result itself."""

    future: Future[Any]


Need = Extension | Preparation | AwaitedWorker
Plan = Generator[Need, Any, T]
"""A generator that yields needs and returns its result. For an Extension it is sent logits float32 [rows or 1, vocab],
for a Preparation a Prepared; errors are thrown into it. What is sent for an AwaitedWorker is ignored."""


@dataclass(frozen=True)
class Staged:
    """An Extension with room in its session's cache, ready for a forward pass; the session is unchanged."""

    extension: Extension
    segment: Segment


@overload
def settled(value: Future[T] | None) -> Plan[T | None]: ...


@overload
def settled(value: T | Future[T]) -> Plan[T]: ...


def settled(value: Any) -> Plan[Any]:
    """Wait for a value that may be a future. Raises what the future raises."""
    if not isinstance(value, Future):
        return value
    if not value.done():
        yield AwaitedWorker(value)
    return value.result()


@torch.inference_mode()
def carry_out(plan: Plan[T]) -> T:
    """Run one plan alone to its end; returns what it returns and raises what it raises."""
    try:
        need = next(plan)
        while True:
            if isinstance(need, Preparation):
                need = plan.send(need.carry_out())
            elif isinstance(need, AwaitedWorker):
                need.future.exception()  # waits; the plan itself reads result or error
                need = plan.send(None)
            else:
                need = plan.send(extend_many([need])[0])
    except StopIteration as end:
        result: T = end.value
        return result


class PlanStep(Generic[P, T]):
    """A planned method bound to one object. plan: creates the plan."""

    __slots__ = ("plan",)

    def __init__(self, plan: Callable[P, Plan[T]]) -> None:
        self.plan = plan

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the plan to its end."""
        return carry_out(self.plan(*args, **kwargs))


class planned(Generic[S, P, T]):
    """Decorator that turns a method returning a plan into a PlanStep of each object."""

    def __init__(self, method: Callable[Concatenate[S, P], Plan[T]]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> planned[S, P, T]: ...

    @overload
    def __get__(self, owner: S, kind: type | None = None) -> PlanStep[P, T]: ...

    def __get__(self, owner: S | None, kind: type | None = None) -> planned[S, P, T] | PlanStep[P, T]:
        return self if owner is None else PlanStep(MethodType(self.method, owner))


@torch.inference_mode()
def extend_many(extensions: Sequence[Extension]) -> list[Tensor]:
    """Extend several sessions of one loaded model in one forward pass.

    Rows of different sessions share the matrix products and attend only to their own caches.

    Args:
        extensions: One for each session, all of the same `LoadedModel`.

    Returns:
        The logits of each extension, in order.

    Raises:
        ModelError: A session cannot be extended like this. No session has changed then.
    """
    joint = extensions[0].session.runner.joint
    if joint is not None and len(extensions) == 1 and extensions[0].run is None:
        return [joint.extend(extensions[0])]
    return forward_together([stage(extension) for extension in extensions])


def stage(extension: Extension) -> Staged:
    """Prepare an extension for a forward pass. Raises ModelError if its session cannot take it."""
    if not extension.rows:
        raise ModelError("nothing to extend by: give at least one token")
    session = extension.session
    if extension.hidden is None:
        low, high = min(extension.ids), max(extension.ids)
        if low < 0 or high >= session.runner.vocab_size:
            token = low if low < 0 else high
            raise ModelError(f"token id {token} is outside the vocabulary of {session.runner.vocab_size}")
    return Staged(extension, session.room_for(extension))


def forward_together(staged: Sequence[Staged]) -> list[Tensor]:
    """Run one forward pass for all extensions, and record the new tokens in their sessions. Call in torch's inference
    mode.

    Returns the logits float32 of each, in order. If the pass fails, its error is raised and no session has changed.
    """
    runner = staged[0].extension.session.runner
    static = runner.static
    if static is not None and static.takes(staged):
        if staged[0].extension.run is not None:
            return [static.chain(staged[0])]
        _check_together(staged)
        return static.logits(staged, _observer(staged))
    if any(one.extension.run is not None for one in staged):
        staged = [replace(one, extension=replace(one.extension, run=None)) for one in staged]
    hidden = hidden_together(staged)
    wanted = []
    start = 0
    for one in staged:
        stop = start + one.segment.rows
        wanted.append(hidden[stop - 1 : stop] if one.extension.last_only else hidden[start:stop])
        start = stop
    logits = runner.logits(wanted[0] if len(wanted) == 1 else torch.cat(wanted))
    return [logits] if len(wanted) == 1 else list(torch.split(logits, [rows.shape[0] for rows in wanted]))


def hidden_together(staged: Sequence[Staged]) -> Tensor:
    """As `forward_together`, but returns the output of the sessions' last layers: [all rows, hidden_size]."""
    first = staged[0].extension
    runner = first.session.runner
    _check_together(staged)
    static = runner.static
    if static is not None and not static.cuts and first.session.layers is not None and static.takes(staged):
        return static.hidden(staged, _observer(staged))
    segments = [one.segment for one in staged]
    rotary = runner.rotary(segments)
    hidden = runner.forward(_input(runner, staged), rotary, segments, _observer(staged), first.session.layers)
    for one in staged:
        one.extension.session.hold(one.extension)
    return hidden


def _check_together(staged: Sequence[Staged]) -> None:
    if any(one.extension.together_with != staged[0].extension.together_with for one in staged):
        raise ModelError("sessions of different models cannot share a forward pass: group them by model")


def _input(runner: DecoderRunner, staged: Sequence[Staged]) -> Tensor:
    """The input of the first layer: [rows, hidden_size]. All ids are embedded in one look-up."""
    if len(staged) == 1 and staged[0].extension.hidden is None:
        known = staged[0].extension.device_ids
        return runner.embed(
            torch.tensor(staged[0].extension.ids, device=runner.device) if known is None else known
        )
    ids = [token for one in staged if one.extension.hidden is None for token in one.extension.ids]
    embedded = runner.embed(torch.tensor(ids, device=runner.device)) if ids else None
    if embedded is not None and all(one.extension.hidden is None for one in staged):
        return embedded
    parts = []
    start = 0
    for one in staged:
        if one.extension.hidden is not None:
            parts.append(one.extension.hidden)
        else:
            assert embedded is not None
            parts.append(embedded[start : start + one.segment.rows])
            start += one.segment.rows
    return _cat(parts)


def _cat(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate rows. Those of prompts with pictures may be wider; narrower ones are padded with zeros."""
    if len(parts) == 1:
        return parts[0]
    widest = max(part.shape[1] for part in parts)
    return torch.cat(
        [F.pad(part, (0, widest - part.shape[1])) if part.shape[1] < widest else part for part in parts]
    )


def _observer(staged: Sequence[Staged]) -> LayerObserver | None:
    """A joint observer that passes each session's rows to its own observer."""
    if len(staged) == 1:
        return staged[0].extension.observer
    watched: list[tuple[int, int, LayerObserver]] = []
    start = 0
    for one in staged:
        if one.extension.observer is not None:
            watched.append((start, start + one.segment.rows, one.extension.observer))
        start += one.segment.rows
    if not watched:
        return None

    def after_layer(layer: int, hidden: Tensor) -> None:
        for first, last, observer in watched:
            observer(layer, hidden[first:last])

    return after_layer
