"""`specnav api` as a process before a verifier as a process, asked by the client that OpenAI ships."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import openai
import pytest

from specdec.models import LoadedModel, load_model
from specdec.models.prompt import Message, conversation_prompt, plain_prompt
from specdec.options import GenerationOptions
from specnav.api.keys import new_key
from specnav.paths import DEFAULT_DRAFT, DEFAULT_TARGET, DEFAULT_TEXT_DRAFT, DEFAULT_TEXT_TARGET
from tests.helpers.tiny_models import picture
from tests.specnav.api_processes import (
    QUESTIONS,
    WAIT_S,
    Served,
    answers,
    api,
    asked,
    client_of,
    data_url,
    gone,
    image,
    metric,
    question,
    right,
    sessions,
    streamed,
    until,
    verifier,
)

JSON = "Content-Type: application/json\r\n"
pytestmark = pytest.mark.graph


@pytest.mark.parametrize("seed", [None, 7])
def test_an_answer_is_the_targets_own_whole_and_streamed(
    served: Served, target: LoadedModel, seed: int | None
) -> None:
    fields: dict[str, Any] = {
        "model": served.model,
        "max_tokens": 48,
        "temperature": 0.0,
        "messages": asked(QUESTIONS[0]),
    }
    if seed is not None:
        fields |= {"temperature": 0.9, "top_p": 0.95, "seed": seed}
    options = GenerationOptions(48, fields["temperature"], seed=seed or 0, top_p=fields.get("top_p", 1.0))
    ids, text = right(target, question(target, QUESTIONS[0]), options)
    whole = served.client.chat.completions.create(**fields, extra_body={"return_token_ids": True})
    choice = whole.choices[0]
    assert choice.message.content == text and choice.message.role == "assistant"
    assert choice.token_ids == ids  # type: ignore[attr-defined]
    assert choice.finish_reason == ("length" if len(ids) == 48 else "stop")
    assert streamed(served.client, **fields)[:2] == (ids, text)
    usage = whole.usage
    assert usage is not None and usage.completion_tokens == len(ids)
    assert usage.prompt_tokens == len(question(target, QUESTIONS[0]).ids)
    details, ours = usage.completion_tokens_details, usage.specnav  # type: ignore[attr-defined]
    assert details is not None and details.accepted_prediction_tokens == ours["accepted"] > 0
    assert ours["drafted"] == ours["accepted"] + (details.rejected_prediction_tokens or 0)
    assert ours["method"] == "fsd" and ours["rounds"] > 0


def test_a_conversation_goes_up_in_order(served: Served, target: LoadedModel) -> None:
    turns = [
        ("system", "Answer shortly."),
        ("user", "What is 3 plus 4?"),
        ("assistant", "7."),
        ("user", "And 5 more?"),
    ]
    prompt = conversation_prompt(target, [Message(role, (text,)) for role, text in turns])
    messages: Any = [{"role": role, "content": text} for role, text in turns]
    messages[1]["content"] = [{"type": "text", "text": "What is 3 "}, {"type": "text", "text": "plus 4?"}]
    found = served.client.chat.completions.create(
        model=served.model, messages=messages, temperature=0, max_tokens=24
    )
    assert found.choices[0].message.content == right(target, prompt, GenerationOptions(24))[1]


def test_a_plain_completion_of_text_and_of_ids(served: Served, target: LoadedModel) -> None:
    prompt = plain_prompt(target, "Once upon a time")
    text = right(target, prompt, GenerationOptions(16))[1]
    create = served.client.completions.create
    assert create(model=served.model, prompt="Once upon a time", temperature=0).choices[0].text == text
    parts = create(model=served.model, prompt=list(prompt.ids), temperature=0, stream=True)
    assert "".join(part.choices[0].text for part in parts) == text


def test_a_stream_tells_what_it_took_where_that_is_asked_for(served: Served) -> None:
    fields: dict[str, Any] = {
        "model": served.model,
        "messages": asked("a"),
        "max_tokens": 12,
        "temperature": 0,
    }
    *chunks, last = served.client.chat.completions.create(
        stream=True, stream_options={"include_usage": True}, **fields
    )
    assert all(chunk.usage is None and len(chunk.choices) == 1 for chunk in chunks)
    assert last.choices == [] and last.usage is not None and 0 < last.usage.completion_tokens <= 12
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices[0].finish_reason in (
        "stop",
        "length",
    )
    body = json.dumps({**fields, "stream": True}).encode()
    url, kind = f"{served.api.bind}/v1/chat/completions", {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body, kind), timeout=WAIT_S) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.read().endswith(b"data: [DONE]\n\n")


def test_stop_strings_biases_and_schemas(served: Served, target: LoadedModel) -> None:
    ids, text = right(target, question(target, QUESTIONS[1]), GenerationOptions(48))
    stop = text[len(text) // 2 :][:4]
    create = served.client.chat.completions.create
    fields: dict[str, Any] = {
        "model": served.model,
        "temperature": 0,
        "max_tokens": 48,
        "messages": asked(QUESTIONS[1]),
    }
    found = create(stop=[stop, "never there"], **fields).choices[0]
    assert found.message.content == text[: text.index(stop)] and found.finish_reason == "stop"
    assert streamed(served.client, stop=stop, **fields)[1] == text[: text.index(stop)]
    biased = right(
        target, question(target, QUESTIONS[1]), GenerationOptions(48, logit_bias=((ids[0], -100.0),))
    )
    assert create(logit_bias={str(ids[0]): -100}, **fields).choices[0].message.content == biased[1]
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = create(response_format=form, **fields).choices[0]
    assert set(json.loads(answer.message.content or "")) == {"n"}


def test_a_stop_string_before_the_least_length_does_not_end_the_answer(
    served: Served, target: LoadedModel
) -> None:
    prompt = question(target, QUESTIONS[1])
    stop = right(target, prompt, GenerationOptions(4))[1][:3]
    ids, text = right(target, prompt, GenerationOptions(40, stop=(stop,), min_new_tokens=20))
    assert len(ids) >= 20 and text.startswith(stop)
    fields: dict[str, Any] = {"model": served.model, "temperature": 0, "max_tokens": 40, "stop": stop}
    fields |= {"messages": asked(QUESTIONS[1]), "extra_body": {"min_tokens": 20, "return_token_ids": True}}
    found = served.client.chat.completions.create(**fields).choices[0]
    assert found.token_ids == ids  # type: ignore[attr-defined]
    cut = text.find(stop, len(target.tokenizer.decode(ids[:19])))
    assert found.message.content == (text if cut < 0 else text[:cut])


def test_what_would_be_left_out_is_refused_by_its_name(served: Served) -> None:
    for field in ({"ignore_eos": True}, {"stop_token_ids": [5]}, {"something_new": 1}):
        with pytest.raises(openai.BadRequestError) as error:
            served.client.chat.completions.create(
                model=served.model, messages=asked("a"), max_tokens=4, extra_body=field
            )
        assert error.value.param == next(iter(field))


def test_eight_clients_at_once_get_their_own_answers(served: Served, target: LoadedModel) -> None:
    sampled = [GenerationOptions(40, 0.8 if n % 2 else 0.0, seed=n) for n in range(8)]
    texts = [QUESTIONS[n % len(QUESTIONS)] for n in range(8)]
    rights = [right(target, question(target, text), one) for text, one in zip(texts, sampled, strict=True)]
    found: list[Any] = [None] * 8

    def ask(n: int) -> None:
        fields = {
            "temperature": sampled[n].temperature,
            "seed": n,
            "max_tokens": 40,
            "messages": asked(texts[n]),
        }
        with client_of(served.api) as client:
            found[n] = streamed(client, model=served.model, **fields)[:2]

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert found == rights
    assert metric(f"{served.api.bind}/metrics", "specnav_api_tokens_total") > 0


def test_frameworks_that_stream_asynchronously_read_whole_answers(served: Served, target: LoadedModel) -> None:
    """As LangChain's astream does: several streams in one loop, joined by index, and one that is given up."""

    async def read(client: openai.AsyncOpenAI, text: str, most: int | None = None) -> str:
        stream = await client.chat.completions.create(
            model=served.model, messages=asked(text), temperature=0, max_tokens=40, stream=True,
            stream_options={"include_usage": True},
        )  # fmt: skip
        parts: list[str] = []
        ends: list[Any] = []
        async with stream:
            async for chunk in stream:
                if not chunk.choices:
                    assert chunk.usage is not None and chunk.usage.total_tokens > chunk.usage.prompt_tokens
                    continue
                assert chunk.object == "chat.completion.chunk" and chunk.choices[0].index == 0
                parts.append(chunk.choices[0].delta.content or "")
                ends.append(chunk.choices[0].finish_reason)
                if len(parts) == most:
                    return ""
        assert ends[-1] is not None and not any(ends[:-1])
        return "".join(parts)

    async def scene() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{served.api.bind}/v1", api_key="unused") as client:
            *found, _ = await asyncio.gather(
                *(read(client, text) for text in QUESTIONS), read(client, "Tell me of a fox.", 1)
            )
            return found

    rights = [right(target, question(target, text), GenerationOptions(40))[1] for text in QUESTIONS]
    assert asyncio.run(scene()) == rights
    until(lambda: sessions(served) == 0, 5.0)


def nested(depth: int) -> dict[str, Any]:
    """A schema whose shortest answer is long."""
    inner = nested(depth - 1) if depth else {"type": "string"}
    return {"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": False}


def test_errors_are_those_that_clients_have_classes_for(served: Served) -> None:
    create, fields = served.client.chat.completions.create, {"model": served.model, "messages": asked("a")}
    wrong: list[tuple[dict[str, Any], type[openai.APIStatusError], str | None]] = [
        ({"n": 2}, openai.BadRequestError, "n"),
        ({"logprobs": True}, openai.BadRequestError, "logprobs"),
        ({"temperature": 9}, openai.BadRequestError, "temperature"),
        ({"logit_bias": {"999999": 1}}, openai.BadRequestError, "logit_bias"),
        ({"messages": asked("a" * 9000)}, openai.BadRequestError, "messages"),
        ({"messages": [{"role": "user", "content": [image("https://example.org/a")]}]}, openai.BadRequestError, None),
        ({"messages": [{"role": "user", "content": [image(data_url())]}]}, openai.BadRequestError, "messages"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "no"}}}},
         openai.BadRequestError, "response_format"),
        ({"max_tokens": 3, "response_format":
         {"type": "json_schema", "json_schema": {"name": "a", "schema": nested(9)}}},
         openai.BadRequestError, "max_tokens"),
        ({"model": "gpt-9"}, openai.NotFoundError, "model"),
    ]  # fmt: skip
    for changes, kind, param in wrong:
        with pytest.raises(kind) as error:
            create(**{**fields, "stream": True, **changes})
        assert error.value.message and error.value.type == "invalid_request_error"
        assert param is None or error.value.param == param
    with pytest.raises(openai.BadRequestError) as error:
        create(**{**fields, "messages": asked("a" * 9000)})
    assert error.value.code == "context_length_exceeded"
    began = time.monotonic()
    with pytest.raises(openai.BadRequestError) as error:  # its tokens alone would take a minute to count
        create(model=served.model, messages=asked("a" * 30_000_000))
    assert error.value.code == "context_length_exceeded" and time.monotonic() - began < 20
    with pytest.raises(openai.APIStatusError) as too_long:
        create(model=served.model, messages=asked("a" * 34_000_000))
    assert too_long.value.status_code == 413


def test_the_model_is_listed_and_the_server_is_well(served: Served) -> None:
    (listed,) = served.client.models.list().data
    assert listed.id == "text-target" and served.client.models.retrieve("text-target").id == listed.id
    with pytest.raises(openai.NotFoundError):
        served.client.models.retrieve("other")
    with urllib.request.urlopen(f"{served.api.bind}/healthz", timeout=WAIT_S) as reply:
        assert json.load(reply)["status"] == "ok"


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_ends_its_answer_on_both_sides(served: Served, stream: bool) -> None:
    body = {
        "model": served.model,
        "messages": asked("a"),
        "max_tokens": 1900,
        "min_tokens": 1900,
        "stream": stream,
    }
    data = json.dumps(body).encode()
    host, port = re.fullmatch(r"http://(.*):(\d+)", served.api.bind).groups()  # type: ignore[union-attr]
    before = len(gone(served))
    with socket.create_connection((host, int(port)), WAIT_S) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\n{JSON}Content-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        if stream:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        until(lambda: sessions(served) == 1)
    until(lambda: sessions(served) == 0, 3.0)
    until(lambda: answers(served.api) == 0, 3.0)
    assert len(gone(served)) == before + 1


def test_a_client_that_goes_away_while_it_asks_disturbs_nobody(served: Served) -> None:
    host, port = re.fullmatch(r"http://(.*):(\d+)", served.api.bind).groups()  # type: ignore[union-attr]
    before = len(gone(served))
    with socket.create_connection((host, int(port)), WAIT_S) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\n{JSON}Content-Length: 1000\r\n\r\nhalf"
        connection.sendall(head.encode())
    until(lambda: len(gone(served)) == before + 1, 5.0)
    assert not served.api.events("request_failed") and not served.api.events("answer_failed")


def test_contents_stay_out_of_the_log(served: Served) -> None:
    served.client.chat.completions.create(model=served.model, messages=asked("xylophone"), max_tokens=4)
    (line,) = served.api.events("request")[-1:]
    assert line["status"] == 200 and line["tokens"] <= 4 and "xylophone" not in served.api.log.read_text()


def test_pictures_of_a_request_are_seen(tmp_path: Path) -> None:
    model = load_model(DEFAULT_TARGET)
    frame = picture(3)
    prompt = conversation_prompt(model, [Message("user", ("find the red ball", frame))])
    with (
        verifier(tmp_path, DEFAULT_TARGET) as up,
        api(tmp_path, up.bind, "--draft-model", str(DEFAULT_DRAFT)) as server,
    ):
        messages: Any = [
            {
                "role": "user",
                "content": [{"type": "text", "text": "find the red ball"}, image(data_url(frame))],
            }
        ]
        with client_of(server) as client:
            found = client.chat.completions.create(
                model="nav-target", messages=messages, temperature=0, max_tokens=40
            )
        assert found.choices[0].message.content == right(model, prompt, GenerationOptions(40))[1]
        assert found.usage is not None and found.usage.prompt_tokens == model.prompt_length(prompt)


def test_keys_a_full_queue_a_verifier_that_dies_and_a_quiet_end(tmp_path: Path, target: LoadedModel) -> None:
    secret = new_key(tmp_path / "api.keys", "laptop")
    flags = ["--api-keys", str(tmp_path / "api.keys"), "--answers", "1", "--queue", "0", "--method", "sd"]
    logs = tmp_path / "logs"
    logs.mkdir()
    options = GenerationOptions(500, 0.9, seed=5, min_new_tokens=500)
    long: dict[str, Any] = {
        "model": "text-target", "messages": asked(QUESTIONS[2]), "max_tokens": 500, "temperature": 0.9, "seed": 5,
        "extra_body": {"min_tokens": 500},
    }  # fmt: skip
    with (
        verifier(logs, DEFAULT_TEXT_TARGET) as first,
        api(logs, first.bind, *flags, "--patience", "8") as server,
    ):
        with client_of(server, "sk-wrong") as stranger, pytest.raises(openai.AuthenticationError) as error:
            stranger.models.list()
        assert error.value.code == "invalid_api_key"
        client = client_of(server, secret)
        answer = client.chat.completions.create(stream=True, **long)
        text = next(iter(answer)).choices[0].delta.content or ""
        with pytest.raises(openai.RateLimitError) as busy:
            client.chat.completions.create(model="text-target", messages=asked("a"))
        assert busy.value.response.headers["retry-after"] == "1"
        first.handle.kill()
        first.handle.wait(10)
        with verifier(logs, DEFAULT_TEXT_TARGET, first.bind):  # it comes back, and knows nothing
            text += "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)
        assert text == right(target, question(target, QUESTIONS[2]), options)[1]
        line = server.events("request")[-1]
        assert line["client"] == "laptop" and line["resumes"] >= 1
    with api(
        logs, first.bind, "--patience", "0", "--name", "mine"
    ) as server:
        with client_of(server) as client, pytest.raises(openai.InternalServerError) as down:
            client.chat.completions.create(model="mine", messages=asked("a"))
        assert down.value.status_code == 503 and down.value.code == "verifier_unreachable"
        with verifier(logs, DEFAULT_TEXT_TARGET, first.bind), client_of(server) as client:
            answer = client.chat.completions.create(**{**long, "model": "mine"}, stream=True)
            chunks = iter(answer)
            next(chunks)
            server.handle.send_signal(signal.SIGTERM)  # an answer in flight may end
            assert sum(bool(chunk.choices) for chunk in chunks) > 0
            assert server.handle.wait(15) == 0
        assert server.events("stopped") and server.events("request")[-1]["finish"] == "length"


def test_another_model_in_the_verifiers_place_is_called_by_its_own_name(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    few: dict[str, Any] = {"messages": asked(QUESTIONS[0]), "max_tokens": 2, "temperature": 0.0}
    with verifier(logs, DEFAULT_TEXT_TARGET) as first, api(logs, first.bind) as server, client_of(server) as client:
        client.chat.completions.create(model="text-target", **few)
        first.handle.kill()
        first.handle.wait(10)
        with verifier(logs, DEFAULT_TEXT_DRAFT, first.bind):
            client.chat.completions.create(model="text-draft", **few)
            assert [entry.id for entry in client.models.list()] == ["text-draft"]
            with pytest.raises(openai.NotFoundError):
                client.chat.completions.create(model="text-target", **few)
