"""Spans of one answer over edge and cloud: one trace, nothing of it lost, nothing of it in the way where it is off."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from io import StringIO

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_trace_id

from cloud_verifier.config import ServerConfig
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from specdec import tracing
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import OptionsError
from specdec.link.convert import sampling_to_wire
from specdec.link.traced import TracedDraftUp, decode_traced, with_trace
from specdec.link.wire import DraftUp, Open, SampledUp, decode_up, encode
from specdec.models import chat_prompt
from specdec.options import GenerationOptions
from specdec.tracing import SWITCH, Tracing, tracing_from_environment
from tests.helpers.servers import PATIENCE_S, Pair, patiently_connected
from tests.helpers.waiting import until
from tests.specdec.checks import Unhurried
from tests.specdec.wired import WiredLink

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SAMPLING = sampling_to_wire(GenerationOptions(8))


class Spans(SpanProcessor):
    """A provider whose spans stay here. begun: how many began."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        provider.add_span_processor(self)
        self.begun = 0
        self.tracing = Tracing(provider)

    def on_start(self, span: object, parent_context: object = None) -> None:
        self.begun += 1

    def ended(self) -> list[ReadableSpan]:
        """All that began, once they have ended: the cloud's last one does after its verdict has left."""
        until(lambda: len(self._exporter.get_finished_spans()) >= self.begun, PATIENCE_S)
        found = list(self._exporter.get_finished_spans())
        assert len(found) == self.begun
        return found


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def log() -> StringIO:
    return StringIO()


@pytest.fixture
def address(text_pair: Pair, spans: Spans, log: StringIO) -> Iterator[str]:
    config = ServerConfig(text_pair.target.path, "tcp://127.0.0.1:0")
    server = Server(config, text_pair.target, EventLog(log), tracing=spans.tracing)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield server.bind
    server.stop()
    thread.join(PATIENCE_S)


@pytest.mark.slow
def test_one_trace_holds_what_edge_and_cloud_did(
    address: str, spans: Spans, text_pair: Pair, log: StringIO
) -> None:
    with patiently_connected(address) as link:
        decoder = EdgeDecoder(link, text_pair.draft, "sd", gamma=3, tracing=spans.tracing)
        prompt = chat_prompt(text_pair.target, "hello")
        tokens = [i for ids in decoder.generate(prompt, GenerationOptions(20)) for i in ids]
        rounds = decoder.stats.rounds
    found = spans.ended()
    assert len({span.context.trace_id for span in found}) == 1
    by_id = {span.context.span_id: span for span in found}
    edges = Counter((by_id[s.parent.span_id].name if s.parent else "", s.name) for s in found)
    count = len(rounds)
    assert edges == {
        ("", "answer"): 1,
        ("answer", "open"): 1,
        ("open", "prefill"): 1,
        ("prefill", "queue"): 1,
        ("prefill", "forward"): 1,
        **dict.fromkeys([("answer", "round"), ("round", "draft"), ("round", "wait"), ("round", "settle")], count),
        **dict.fromkeys([("round", "verify"), ("verify", "queue"), ("verify", "forward")], count),
    }
    for span in found:
        assert span.start_time <= span.end_time
        if span.parent and span.name in ("verify", "forward", "wait", "round"):
            around = by_id[span.parent.span_id]
            slack_ns = 2_000_000  # two clocks were set beside the wall clock at two times
            assert around.start_time - slack_ns <= span.start_time and span.end_time <= around.end_time + slack_ns
    verdicts = [span.attributes for span in found if span.name == "verify"]
    assert [v["accepted"] for v in verdicts] == [one.accepted for one in rounds]
    assert {v["client"] for v in verdicts} == {"anonymous"} and len({v["session"] for v in verdicts}) == 1
    (answer,) = [span.attributes for span in found if span.name == "answer"]
    assert answer == {"method": "sd", "finish": decoder.stats.finish, "tokens": len(tokens)}
    values = {v for span in found for v in span.attributes.values()}
    assert not any(isinstance(v, (list, tuple)) for v in values)
    trace = format_trace_id(found[0].context.trace_id)
    logged = [json.loads(line) for line in log.getvalue().splitlines() if trace in line]
    assert "prefilled" in {line["event"] for line in logged}, "a trace leads to the session's lines in the log"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ar", "sd", "picospec", "dsd", "fsd"])
def test_every_span_ends_also_where_drafts_are_refuted_and_links_lost(
    text_pair: Pair, spans: Spans, method: str
) -> None:
    prompt, options = chat_prompt(text_pair.target, "hello"), GenerationOptions(30, 0.8, seed=3)
    answers = []
    for traced in (None, spans.tracing):
        link = WiredLink(text_pair.target, slowness=0.6, cuts=(3, 7), seed=2)
        decoder = EdgeDecoder(link, text_pair.draft, method, 3, 60.0, tracing=traced)
        answers.append([i for ids in decoder.generate(prompt, options, Unhurried()) for i in ids])
    assert answers[0] == answers[1] and decoder.stats.resumes == 2
    found = spans.ended()
    assert [span.name for span in found].count("answer") == 1
    judged = [span for span in found if span.name == "settle"]
    assert len(judged) == (0 if method == "ar" else len(decoder.stats.rounds))


@pytest.mark.slow
def test_a_stream_is_traced_as_well(address: str, spans: Spans, text_pair: Pair) -> None:
    with patiently_connected(address) as link:
        decoder = EdgeDecoder(link, text_pair.draft, "ar", tracing=spans.tracing)
        list(decoder.generate(chat_prompt(text_pair.target, "hello"), GenerationOptions(6)))
    names = Counter(span.name for span in spans.ended())
    assert names["tokens"] == names["decode"] == len(decoder.stats.rounds) > 0
    assert len({span.context.trace_id for span in spans.ended()}) == 1


@pytest.mark.slow
def test_an_edge_that_traces_nothing_makes_no_spans_in_the_cloud(
    address: str, spans: Spans, text_pair: Pair
) -> None:
    with patiently_connected(address) as link:
        list(EdgeDecoder(link, text_pair.draft).generate(chat_prompt(text_pair.target, "hello"), GenerationOptions(6)))
    assert spans.begun == 0


@pytest.mark.parametrize(
    "message",
    [Open(1, False, SAMPLING, [1, 2]), DraftUp(1, 2, 3, [4], [-1], 5), SampledUp(1, 2, 3, [4], b"1234", 5, 6)],
    ids=lambda message: type(message).__name__,
)
def test_a_trace_travels_and_is_ignored_where_nobody_traces(message: Open | DraftUp | SampledUp) -> None:
    data = encode(with_trace(message, PARENT))
    assert decode_up(data) == message
    seen = decode_traced(data)
    assert isinstance(seen, type(message)) and seen.trace == PARENT  # type: ignore[attr-defined]
    assert decode_traced(encode(message)).trace == ""  # type: ignore[union-attr]
    fields = msgspec.msgpack.decode(encode(message))
    missing = len(type(message).__struct_fields__) + 1 - len(fields)
    assert missing == 0
    for wrong in (7, b"x", "x" * 200, [PARENT], None):
        assert decode_traced(msgspec.msgpack.encode([*fields, wrong])) == message, "what is not a trace is not an error"


def test_what_is_no_traceparent_is_no_parent(spans: Spans) -> None:
    assert spans.tracing.parent(PARENT) is not None
    for wrong in ("", "x", PARENT[:-1], PARENT.replace("b7ad6b7169203331", "0" * 16), PARENT.upper() + "g"):
        assert spans.tracing.parent(wrong) is None


def test_a_round_with_a_trace_stays_small() -> None:
    draft = DraftUp(65_535, 65_535, 65_535, [151_643] * 4)
    assert len(encode(with_trace(draft, PARENT))) == len(encode(draft)) + len(PARENT) + 2
    assert isinstance(with_trace(draft, PARENT), TracedDraftUp)


def test_tracing_is_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for off in ("", "0"):
        monkeypatch.setenv(SWITCH, off)
        assert tracing_from_environment("edge") is None
    monkeypatch.setenv(SWITCH, "yes")
    with pytest.raises(OptionsError, match="set it to 1"):
        tracing_from_environment("edge")


def test_what_is_missing_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")
    with pytest.raises(OptionsError, match=r"exporter 'pigeon'.*pip install"):
        tracing_from_environment("edge")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert isinstance(tracing_from_environment("edge"), Tracing)
    tracing._tracing.cache_clear()
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(OptionsError, match="not installed: pip install"):
        tracing_from_environment("edge")
