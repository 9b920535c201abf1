# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry spans: how long each round of an answer took, in one trace over edge and cloud.

Off unless SPECNAV_OTEL=1. When off, OpenTelemetry is not imported and tracing costs one check. OpenTelemetry's own
variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, …) set where spans go and how many are kept. Spans hold
only counts, times and names, nothing of a prompt or an answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from specdec.errors import OptionsError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

SWITCH = "SPECNAV_OTEL"
_INSTALL = "pip install 'specnav[otel]'"
_EXPORTERS = "opentelemetry_traces_exporter"

Attribute = str | int | float | bool


def tracing_from_environment(service: str) -> Tracing | None:
    """Tracing for this process, or None if it is off. service: the service name in traces.

    Raises OptionsError if tracing is requested but not available.
    """
    asked = os.environ.get(SWITCH, "")
    if asked in ("", "0"):
        return None
    if asked != "1":
        raise OptionsError(f"{SWITCH} = {asked!r}: set it to 1 to trace, or to 0")
    return _tracing(service)


@cache
def _tracing(service: str) -> Tracing:
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise OptionsError(f"{SWITCH} is set, but OpenTelemetry is not installed: {_INSTALL}") from None
    name = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
    if name == "otlp":
        by_grpc = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc"
        name = "otlp_proto_grpc" if by_grpc else "otlp_proto_http"
    found = list(entry_points(group=_EXPORTERS, name=name))
    if name != "none" and not found:
        raise OptionsError(f"{SWITCH} is set, but the exporter {name!r} is not installed: {_INSTALL}")
    of_ours = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: service}
    provider = TracerProvider(resource=Resource.create(of_ours))
    for one in found[:1]:
        provider.add_span_processor(BatchSpanProcessor(one.load()()))
    return Tracing(provider)


class Tracing:
    """Creates the spans of one process, and passes them over the wire as W3C traceparents."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("specnav")
        self._propagator = TraceContextTextMapPropagator()

    def timeline(self, clock: Callable[[], float]) -> Timeline:
        """A Timeline for spans whose times are seconds of `clock`."""
        return Timeline(self._tracer, clock)

    def traceparent(self, span: Span) -> str:
        """The W3C traceparent of a span, for the wire."""
        from opentelemetry.trace import set_span_in_context

        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(span))
        return carrier.get("traceparent", "")

    def parent(self, traceparent: str) -> Context | None:
        """The context of the other side's span, as a parent for ours; None if `traceparent` is invalid."""
        from opentelemetry.trace import get_current_span

        context = self._propagator.extract({"traceparent": traceparent})
        return context if get_current_span(context).get_span_context().is_valid else None


    def trace_id(self, parent: Context) -> str:
        """The trace id, 32 hexadecimal digits."""
        from opentelemetry.trace import format_trace_id, get_current_span

        return format_trace_id(get_current_span(parent).get_span_context().trace_id)


class Timeline:
    """Spans of one answer. Their times are converted to wall-clock time by the offset measured at its start."""

    def __init__(self, tracer: Tracer, clock: Callable[[], float]) -> None:
        self._tracer = tracer
        self._offset_ns = _offset_ns(clock)

    def start(
        self, name: str, at_s: float, parent: Span | Context | None = None, **attributes: Attribute
    ) -> Span:
        """Start a span. parent None: the current span of the caller, if any."""
        from opentelemetry.trace import Span, set_span_in_context

        context = set_span_in_context(parent) if isinstance(parent, Span) else parent
        return self._tracer.start_span(name, context, attributes=attributes, start_time=self._ns(at_s))

    def end(self, span: Span, at_s: float) -> None:
        """End a span."""
        span.end(self._ns(at_s))

    def span(self, name: str, began_s: float, ended_s: float, parent: Span, **attributes: Attribute) -> None:
        """Record a span that is already over."""
        self.end(self.start(name, began_s, parent, **attributes), ended_s)

    def _ns(self, at_s: float) -> int:
        return int(at_s * 1e9) + self._offset_ns


def _offset_ns(clock: Callable[[], float]) -> int:
    """Nanoseconds from `clock` to the wall clock: of three readings, the one with the shortest interruption."""
    readings = []
    for _ in range(3):
        before, wall_ns, after = clock(), time.time_ns(), clock()
        readings.append((after - before, wall_ns - int((before + after) / 2 * 1e9)))
    return min(readings)[1]


class AnswerTrace:
    """The spans of one answer on the edge. Times are seconds of the clock.

    The root span `answer` holds `open` (from sending the prompt to the reply) and one `round` per draft, which consists
    of `draft`, `wait` and `settle`. If the cloud streams, `answer` holds `tokens` spans.
    """

    def __init__(self, tracing: Tracing, clock: Callable[[], float], method: str) -> None:
        self._tracing = tracing
        self._timeline = tracing.timeline(clock)
        self._answer = self._timeline.start("answer", clock(), method=method)
        self._open: Span | None = None
        self._rounds: dict[int, tuple[Span, float]] = {}

    def opening(self, now: float) -> str:
        """The prompt is sent; returns its traceparent. Rounds still open are marked as unanswered."""
        self._lose(now)
        self._open = self._timeline.start("open", now, self._answer)
        return self._tracing.traceparent(self._open)

    def opened(self, now: float) -> None:
        """The verifier has computed the prompt."""
        if self._open is not None:
            self._timeline.end(self._open, now)
            self._open = None

    def sent(self, round_: int, began_s: float, now: float, drafted: int) -> str:
        """A draft that was begun at `began_s` is sent; returns its traceparent."""
        span = self._timeline.start("round", began_s, self._answer, round=round_, drafted=drafted)
        self._timeline.span("draft", began_s, now, span)
        self._rounds[round_] = span, now
        return self._tracing.traceparent(span)

    def judged(
        self, round_: int, heard_s: float, now: float, accepted: int, gained: int, refuted: Collection[int]
    ) -> None:
        """The verdict on the drafts up to `round_` arrived at `heard_s` and is processed. refuted: rounds whose drafts
        it invalidated.
        """
        for number in [number for number in self._rounds if number <= round_ or number in refuted]:
            span, sent_s = self._rounds.pop(number)
            self._timeline.span("wait", sent_s, heard_s, span)
            if number == round_:
                span.set_attributes({"accepted": accepted, "gained": gained})
                self._timeline.span("settle", heard_s, now, span)
            elif number in refuted:
                span.set_attribute("refuted", True)
            self._timeline.end(span, now)

    def streamed(self, since_s: float, now: float, tokens: int) -> None:
        """Tokens from a cloud that decodes alone. since_s: when the previous ones arrived."""
        self._timeline.span("tokens", since_s, now, self._answer, tokens=tokens)

    def end(self, now: float, finish: str, tokens: int) -> None:
        """The answer has ended."""
        self._lose(now)
        self._answer.set_attributes({"finish": finish, "tokens": tokens})
        self._timeline.end(self._answer, now)

    def _lose(self, now: float) -> None:
        """End all open spans: their messages will not be answered."""
        self.opened(now)
        for span, _ in self._rounds.values():
            span.set_attribute("answered", False)
            self._timeline.end(span, now)
        self._rounds.clear()
