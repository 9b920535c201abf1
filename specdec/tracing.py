# SPDX-License-Identifier: Apache-2.0
"""Spans for OpenTelemetry: what an answer took, round by round, joined over edge and cloud.

Off unless SPECNAV_OTEL=1: then nothing of OpenTelemetry is imported, and all that tracing costs is asking whether there
is any. Its own variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, …) say where spans go and how many. Nothing
of a prompt or an answer goes into a span: counts, times and names only.
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
    """Tracing for this process, or None if not asked for. service: what it is called in a trace.

    Raises OptionsError where it was asked for and cannot be had.
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
        raise OptionsError(f"{SWITCH} is set and OpenTelemetry is not installed: {_INSTALL}") from None
    name = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
    if name == "otlp":
        by_grpc = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc"
        name = "otlp_proto_grpc" if by_grpc else "otlp_proto_http"
    found = list(entry_points(group=_EXPORTERS, name=name))
    if name != "none" and not found:
        raise OptionsError(f"{SWITCH} is set and there is no exporter {name!r} for its spans: {_INSTALL}")
    of_ours = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: service}
    provider = TracerProvider(resource=Resource.create(of_ours))
    for one in found[:1]:
        provider.add_span_processor(BatchSpanProcessor(one.load()()))
    return Tracing(provider)


class Tracing:
    """Makes the spans of one process, and carries them over the wire as W3C traceparents."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("specnav")
        self._propagator = TraceContextTextMapPropagator()

    def timeline(self, clock: Callable[[], float]) -> Timeline:
        """For spans whose times are seconds of a clock."""
        return Timeline(self._tracer, clock)

    def traceparent(self, span: Span) -> str:
        """A span as the wire carries it."""
        from opentelemetry.trace import set_span_in_context

        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(span))
        return carrier.get("traceparent", "")

    def parent(self, traceparent: str) -> Context | None:
        """What a span of the other side is the parent of; None for what is not a traceparent."""
        from opentelemetry.trace import get_current_span

        context = self._propagator.extract({"traceparent": traceparent})
        return context if get_current_span(context).get_span_context().is_valid else None


    def trace_id(self, parent: Context) -> str:
        """By which a trace is found, 32 hexadecimal digits."""
        from opentelemetry.trace import format_trace_id, get_current_span

        return format_trace_id(get_current_span(parent).get_span_context().trace_id)


class Timeline:
    """Spans of one answer, placed on the wall clock by how it stood to theirs when the answer began."""

    def __init__(self, tracer: Tracer, clock: Callable[[], float]) -> None:
        self._tracer = tracer
        self._offset_ns = _offset_ns(clock)

    def start(
        self, name: str, at_s: float, parent: Span | Context | None = None, **attributes: Attribute
    ) -> Span:
        """A span that has begun; parent None: what is current where this is called, or none."""
        from opentelemetry.trace import Span, set_span_in_context

        context = set_span_in_context(parent) if isinstance(parent, Span) else parent
        return self._tracer.start_span(name, context, attributes=attributes, start_time=self._ns(at_s))

    def end(self, span: Span, at_s: float) -> None:
        """A span is over."""
        span.end(self._ns(at_s))

    def span(self, name: str, began_s: float, ended_s: float, parent: Span, **attributes: Attribute) -> None:
        """A span that is over already."""
        self.end(self.start(name, began_s, parent, **attributes), ended_s)

    def _ns(self, at_s: float) -> int:
        return int(at_s * 1e9) + self._offset_ns


def _offset_ns(clock: Callable[[], float]) -> int:
    """What makes the wall clock's nanoseconds of a clock's; of a few readings the one that was interrupted least."""
    readings = []
    for _ in range(3):
        before, wall_ns, after = clock(), time.time_ns(), clock()
        readings.append((after - before, wall_ns - int((before + after) / 2 * 1e9)))
    return min(readings)[1]


class AnswerTrace:
    """An answer as the edge sees it: `answer`; in it `open` (the prompt goes up until it is in) and a `round` for each
    draft, made of `draft`, `wait` and `settle`; where the cloud streams, `tokens`. Times are seconds of the clock.
    """

    def __init__(self, tracing: Tracing, clock: Callable[[], float], method: str) -> None:
        self._tracing = tracing
        self._timeline = tracing.timeline(clock)
        self._answer = self._timeline.start("answer", clock(), method=method)
        self._open: Span | None = None
        self._rounds: dict[int, tuple[Span, float]] = {}

    def opening(self, now: float) -> str:
        """The prompt goes up; returns the traceparent to go with it. What was on its way before that is lost."""
        self._lose(now)
        self._open = self._timeline.start("open", now, self._answer)
        return self._tracing.traceparent(self._open)

    def opened(self, now: float) -> None:
        """The prompt is in."""
        if self._open is not None:
            self._timeline.end(self._open, now)
            self._open = None

    def sent(self, round_: int, began_s: float, now: float, drafted: int) -> str:
        """A draft leaves that was begun at `began_s`; returns the traceparent to go with it."""
        span = self._timeline.start("round", began_s, self._answer, round=round_, drafted=drafted)
        self._timeline.span("draft", began_s, now, span)
        self._rounds[round_] = span, now
        return self._tracing.traceparent(span)

    def judged(
        self, round_: int, heard_s: float, now: float, accepted: int, gained: int, refuted: Collection[int]
    ) -> None:
        """The verdict on the drafts up to `round_` came at `heard_s` and is worked in. refuted: rounds that it made
        worthless.
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
        """Tokens of a cloud that decodes alone; since_s: when those before them came."""
        self._timeline.span("tokens", since_s, now, self._answer, tokens=tokens)

    def end(self, now: float, finish: str, tokens: int) -> None:
        """The answer is over."""
        self._lose(now)
        self._answer.set_attributes({"finish": finish, "tokens": tokens})
        self._timeline.end(self._answer, now)

    def _lose(self, now: float) -> None:
        """Whatever was on its way will not be answered."""
        self.opened(now)
        for span, _ in self._rounds.values():
            span.set_attribute("answered", False)
            self._timeline.end(span, now)
        self._rounds.clear()
