# SPDX-License-Identifier: Apache-2.0
"""Spans of a session's work: `prefill`, `verify` or `decode`, with child spans `queue` and one `forward` per pass.

Only sessions that the edge traces are traced here, as part of the edge's trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cloud_verifier.observing.counts import SessionUse
from specdec.link.traced import TracedDraftUp, TracedOpen, TracedSampledUp
from specdec.link.wire import Up
from specdec.models.plans import Plan
from specdec.tracing import Tracing

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span


def trace_of(tracing: Tracing, opening: Up, use: SessionUse, clock: Callable[[], float]) -> SessionTrace | None:
    """The trace of a session, whose id is added to its log; None if the edge does not trace."""
    context = tracing.parent(opening.trace) if isinstance(opening, TracedOpen) else None
    if context is None:
        return None
    use.log = use.log.bind(trace=tracing.trace_id(context))
    return SessionTrace(tracing, context, use, clock)


class SessionTrace:
    """The spans of one session. Times are in seconds of the clock."""

    def __init__(
        self, tracing: Tracing, context: Context, use: SessionUse, clock: Callable[[], float]
    ) -> None:
        """context: the edge's span in which the session was opened."""
        self._tracing = tracing
        self._opened_in = context
        self._timeline = tracing.timeline(clock)
        self._about = {"session": use.id, "client": use.client.name}
        self._clock = clock
        self._span: Span | None = None
        self._queued_s: float | None = None
        self._replied_s: float | None = None

    def around(self, name: str, message: Up | None, arrived_s: float, plan: Plan[None]) -> Plan[None]:
        """Wrap a plan in a span, from the arrival of the message that caused it to the reply."""
        context = self._opened_in
        if isinstance(message, (TracedDraftUp, TracedSampledUp)):
            context = self._tracing.parent(message.trace) or context
        self._span = span = self._timeline.start(name, arrived_s, context, **self._about)
        self._queued_s, self._replied_s = arrived_s, None
        try:
            yield from plan
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)  # its message may quote a prompt
            raise
        finally:
            self._span = None
            self._timeline.end(span, self._replied_s or self._clock())

    def forward(self, began_s: float, ended_s: float, sessions: int) -> None:
        """Record a forward pass in which this session had rows. sessions: number that shared it."""
        if self._span is None:
            return
        if self._queued_s is not None:
            self._timeline.span("queue", self._queued_s, began_s, self._span)
            self._queued_s = None
        self._timeline.span("forward", began_s, ended_s, self._span, sessions=sessions)

    def replied(self, tokens: int, drafted: int, accepted: int) -> None:
        """The reply is sent now."""
        self._replied_s = self._clock()
        if self._span is not None:
            self._span.set_attributes({"tokens": tokens, "drafted": drafted, "accepted": accepted})
