"""Requests of `specnav api` without a server: what is read, what is refused, and what text and keys come to."""

from __future__ import annotations

import asyncio
import base64
import json
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

import pytest

from cloud_verifier.logs import EventLog
from specdec.isolation.accounts import OverSpent
from specdec.models.prompt import Message
from specnav.api.asking.asked import ApiRequest, chat_asked, completion_asked
from specnav.api.asking.bodies import HARMLESS, NEUTRAL, ChatBody, CompletionBody, read_body
from specnav.api.config import ApiConfig
from specnav.api.errors import ApiError, api_error
from specnav.api.keys import ApiKeys, new_key
from specnav.api.request_queue import RequestQueue
from specnav.api.text import AnswerText
from specnav.errors import UsageError

PNG = b"\x89PNG\r\n\x1a\n rest of a picture"
PICTURE = "data:image/png;base64," + base64.b64encode(PNG).decode()
HELLO = [{"role": "user", "content": "hello"}]


def chat(**fields: object) -> ApiRequest:
    body = {"model": "m", "messages": HELLO, **fields}
    return chat_asked(read_body(json.dumps(body).encode(), ChatBody), max_tokens=100)


def completion(**fields: object) -> ApiRequest:
    return completion_asked(read_body(json.dumps({"model": "m", **fields}).encode(), CompletionBody))


def refusal(**fields: object) -> ApiError:
    with pytest.raises(ApiError) as error:
        chat(**fields)
    assert error.value.status == 400
    return error.value


def test_turns_keep_their_order_and_pictures_their_places() -> None:
    asked = chat(
        messages=[
            {"role": "system", "content": "be kind"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image_url", "image_url": {"url": PICTURE}},
                ],
            },
            {"role": "assistant", "content": "b"},
            {"role": "assistant", "content": None, "refusal": "no"},
            {"role": "developer", "content": [{"type": "text", "text": "c"}]},
            {"role": "user", "content": "d", "name": "joe"},
        ]
    )
    assert asked.prompt == (
        Message("system", ("be kind",)),
        Message("user", ("a", PNG)),
        Message("assistant", ("b",)),
        Message("assistant", ("",)),
        Message("system", ("c",)),
        Message("user", ("d",)),
    )


def test_options_are_openais_and_its_defaults_too() -> None:
    asked = chat(
        temperature=0.5, top_p=0.9, seed=-1, stop="end", max_completion_tokens=7, max_tokens=9, logit_bias={"5": -2},
        presence_penalty=0, n=1, user="me", something_new=None, top_k=3, min_p=0.1, repetition_penalty=1.1,
    )  # fmt: skip
    options = asked.options
    assert (options.temperature, options.top_p, options.stop, options.max_new_tokens) == (
        0.5,
        0.9,
        ("end",),
        7,
    )
    assert options.seed == (1 << 63) - 1 and options.logit_bias == ((5, -2.0),)
    assert (options.top_k, options.min_p, options.repetition_penalty) == (3, 0.1, 1.1)
    plain = chat()
    assert plain.options.temperature == 1.0 and plain.options.max_new_tokens == 100
    assert chat().options.seed != chat().options.seed
    assert chat(temperature=1e-7).options.temperature == 0.0
    assert completion(prompt="a").options.max_new_tokens == 16
    assert chat(stream=True, stream_options={"include_usage": None}).include_usage is False


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": -1}, "frequency_penalty"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            "messages[0].content[0].type",
        ),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["a", ""]}, "stop"),
        ({"logit_bias": {"five": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 1e9}}, "logit_bias"),
        ({"logit_bias": {"-1": 5}}, "logit_bias"),
        ({"logit_bias": {"9" * 40: 5}}, "logit_bias"),
        ({"min_tokens": -3}, "min_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": {"type": "json_object", "strict": True}}, "response_format.strict"),
        (
            {"response_format": {"type": "json_object", "schema": {"x-guidance": {"lenient": True}}}},
            "response_format.schema",
        ),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"stop_token_ids": [5]}, "stop_token_ids"),
        ({"include_stop_str_in_output": True}, "include_stop_str_in_output"),
        ({"skip_special_tokens": False}, "skip_special_tokens"),
        ({"bad_words": ["a"]}, "bad_words"),
        ({"guided_regex": "a+"}, "guided_regex"),
        ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"something_new": {"a": 1}}, "something_new"),
        ({"logit_bias": [[5, 1]]}, "logit_bias"),
        ({"stream": True, "stream_options": {"new": 1}}, "stream_options.new"),
        (
            {"stream": True, "stream_options": {"continuous_usage_stats": True}},
            "stream_options.continuous_usage_stats",
        ),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]}]},
            "messages[0].tool_calls",
        ),
        (
            {"messages": [{"role": "assistant", "content": "a", "reasoning_content": "b"}]},
            "messages[0].reasoning_content",
        ),
        ({"messages": [{"role": "user", "content": "a", "prefix": True}]}, "messages[0].prefix"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}}],
                    }
                ]
            },
            "messages[0].content[0].image_url.detail",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_field(fields: dict[str, object], param: str) -> None:
    assert refusal(**fields).param == param


def test_fields_that_ask_for_nothing_are_taken() -> None:
    neutral = {name: values[0] for name, values in NEUTRAL.items() if values and name != "response_format"}
    assert chat(**neutral, **dict.fromkeys(HARMLESS, "x")).prompt == chat().prompt
    assert chat(**dict.fromkeys(NEUTRAL)).options.grammar == ""
    said = {"role": "assistant", "content": "a", "refusal": None, "tool_calls": [], "annotations": []}
    assert chat(messages=[said, *HELLO]).prompt == chat(messages=[{**said, "audio": None}, *HELLO]).prompt
    for url in (PICTURE, PICTURE[:30] + "\n" + PICTURE[30:] + "\r\n"):  # lines as `base64` breaks them
        picture = {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}
        assert chat(messages=[{"role": "user", "content": [picture]}]).prompt == (Message("user", (PNG,)),)
    with pytest.raises(ApiError) as error:
        completion(prompt="a", response_format={"type": "json_object"})
    assert error.value.param == "response_format"
    with pytest.raises(ApiError) as error:
        completion(prompt="a", messages=HELLO)
    assert error.value.param == "messages"


def test_the_page_about_the_api_names_every_field_that_is_refused_or_ignored() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    assert not [name for name in (*NEUTRAL, *HARMLESS) if f"`{name}`" not in page]


def test_a_long_value_that_is_refused_is_not_said_back_whole() -> None:
    assert len(refusal(tools=[{"type": "function", "name": "f" * 10_000}]).message) < 200
    long = "f" * 1_000_000
    for message in ({"role": long}, {"role": "user", "content": [{"type": long}]}, {"role": "user", long: 1}):
        error = refusal(messages=[message]).body["error"]
        assert isinstance(error, dict) and len(error["message"]) + len(error["param"]) < 2100


class Counting:
    """A tokenizer with a token for every this many characters, that counts what it has read."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.read = 0

    def __call__(self, text: str) -> dict[str, list[int]]:
        self.read += len(text)
        return {"input_ids": [1] * (len(text) // self.width)}


@pytest.mark.parametrize("width", [1, 5, 40])
def test_a_prompt_of_megabytes_is_refused_without_reading_all_of_it(width: int) -> None:
    limit, tokenizer = 1000, Counting(width)
    assert chat(messages=[{"role": "user", "content": "a" * 1000}] * 5000).is_surely_longer(tokenizer, limit)
    assert tokenizer.read <= 8 * limit * max(width, 16)


def test_a_prompt_that_may_fit_is_not_refused_by_a_look_at_it() -> None:
    asked, tokenizer = completion(prompt="a" * 100_000), Counting(100)
    assert not asked.is_surely_longer(tokenizer, 1000)  # of exactly so many
    assert not completion(prompt=[1] * 5000).is_surely_longer(tokenizer, 1000)  # ids are counted, not read
    assert not chat().is_surely_longer(tokenizer, 1000)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://example.org/a.png", "is not fetched"),
        ("file:///etc/passwd", "is not fetched"),
        ("a.png", "is not an address"),
        ("data:image/png,abc", "not in base64"),
        ("data:image/png;base64,@@", "broken"),
        ("data:image/gif;base64,R0lGODlh", "neither a JPEG nor a PNG"),
    ],
)
def test_pictures_come_with_the_request_or_not_at_all(url: str, said: str) -> None:
    part = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    error = refusal(messages=[{"role": "user", "content": [part]}])
    assert said in error.message and error.param == "messages[0].content[0].image_url.url"


def test_a_completion_has_one_prompt_of_text_or_ids() -> None:
    assert completion(prompt="a").prompt == "a" and completion(prompt=["a"]).prompt == "a"
    assert completion(prompt=[5, 6]).prompt == (5, 6) == completion(prompt=[[5, 6]]).prompt
    for wrong in (["a", "b"], [[1], [2]], [], [1.5], [True], [None]):
        if wrong == []:
            assert completion(prompt=wrong).prompt == ()  # empty: the model says so
            continue
        with pytest.raises(ApiError) as error:
            completion(prompt=wrong)
        assert error.value.param == "prompt"
    for field in ({"echo": True}, {"best_of": 3}, {"suffix": "b"}, {"logprobs": 2}, {"logprobs": 0}):
        with pytest.raises(ApiError, match="not supported"):
            completion(prompt="a", **field)


def test_formats_become_grammars() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    asked = chat(
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": schema, "strict": True},
        }
    )
    assert asked.options.grammar.startswith("start: %json ") and '"integer"' in asked.options.grammar
    assert '"object"' in chat(response_format={"type": "json_object"}).options.grammar
    with_schema = chat(response_format={"type": "json_object", "schema": schema})
    assert with_schema.options.grammar == asked.options.grammar
    assert chat(response_format={"type": "text"}).options.grammar == ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"model": "m"',
        b'{"model": "m", "messages": [], "tools": ' + b"[" * 100_000,
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "m", "messages": [], "seed": 1e40}',
        b'{"model": "m", "messages": [], "temperature": NaN}',
    ],
)
def test_what_is_no_request_is_refused_whatever_it_is(data: bytes) -> None:
    with pytest.raises(ApiError) as error:
        read_body(data, ChatBody)
    assert error.value.status == 400 and error.value.message


class Letters:
    """A token a letter."""

    def decode(self, ids: list[int], skip_special_tokens: bool = False, **_: object) -> str:
        return "".join(map(chr, ids))


def shown(text: str, stops: list[str], least: int = 0) -> list[str]:
    answer = AnswerText(Letters(), stops, least)
    return [*(answer.push([ord(letter)]) for letter in text), answer.finish()]


def test_text_holds_back_what_may_be_a_stop_string_and_leaves_it_out() -> None:
    assert shown("a STO", ["STOP"]) == ["a", " ", "", "", "", "STO"]
    assert "".join(shown("one STOP", ["STOP"])) == "one "
    assert shown("a SToP", ["STOP"]) == ["a", " ", "", "", "STo", "P", ""]
    assert "".join(shown("xaab", ["aab", "ab"])) == "x"
    assert "".join(shown("abc", [])) == "abc"


def test_a_stop_string_before_the_least_length_is_part_of_the_answer() -> None:
    assert "".join(shown("a STOP b STOP", ["STOP"], least=7)) == "a STOP b "
    assert "".join(shown("a STOP", ["STOP"], least=6)) == "a "  # as long as it must be
    assert shown("STOP STO", ["STOP"], least=5)[-1] == "STO"


def test_errors_say_whose_fault_it_is() -> None:
    from specdec import errors as e

    statuses = {
        e.VerifierBusy: 429, e.LinkLost: 503, e.KeyRefused: 503, e.OptionsError: 400, e.ProtocolError: 502,
        e.VocabularyMismatch: 503, e.RequestRefused: 400,
    }  # fmt: skip
    for kind, status in statuses.items():
        error = api_error(kind("why\nso"))
        assert error.status == status and error.body["error"]["message"] == "why so"  # type: ignore[index]


def test_a_key_is_told_once_and_kept_as_a_hash(tmp_path: Path) -> None:
    place = tmp_path / "api.keys"
    secret, other = new_key(place, "laptop"), new_key(place, "desk")
    assert secret not in place.read_text() and place.stat().st_mode & 0o077 == 0
    keys = ApiKeys(place, EventLog(StringIO()))
    assert keys.owner(f"Bearer {secret}") == "laptop" and keys.owner(f"bearer {other}") == "desk"
    for wrong in ("", "Bearer", f"Basic {secret}", f"Bearer {secret}x", secret, "Bearer \ud800"):
        with pytest.raises(ApiError) as error:
            keys.owner(wrong)
        assert error.value.status == 401
    with pytest.raises(UsageError, match="already"):
        new_key(place, "laptop")
    with pytest.raises(UsageError, match="not usable"):
        new_key(place, "a b")


def test_a_line_taken_out_shuts_its_owner_out(tmp_path: Path) -> None:
    place = tmp_path / "api.keys"
    secret, other = new_key(place, "laptop"), new_key(place, "desk")
    keys = ApiKeys(place, EventLog(StringIO()))
    lines = place.read_text().splitlines(keepends=True)
    place.write_text("# who\n\n" + lines[1])
    assert keys.owner(f"Bearer {other}") == "desk"
    with pytest.raises(ApiError):
        keys.owner(f"Bearer {secret}")
    place.write_text("half a")  # a file that is broken changes nothing
    assert keys.owner(f"Bearer {other}") == "desk"


def test_a_file_that_could_not_be_read_counts_as_soon_as_it_can(tmp_path: Path) -> None:
    """An editor's new file may be readable by others, and its time does not change with its mode."""
    place = tmp_path / "api.keys"
    secret, other = new_key(place, "laptop"), new_key(place, "desk")
    log = StringIO()
    keys = ApiKeys(place, EventLog(log))
    kept = place.read_text().splitlines(keepends=True)[1]
    place.unlink()
    place.write_text(kept)
    place.chmod(0o644)
    assert keys.owner(f"Bearer {secret}") == "laptop", "the last file that could be read"
    assert "keys_unreadable" in log.getvalue() and f"chmod 600 {place}" in log.getvalue()
    place.chmod(0o600)
    with pytest.raises(ApiError):
        keys.owner(f"Bearer {secret}")
    assert keys.owner(f"Bearer {other}") == "desk"


def test_keys_made_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    place = tmp_path / "api.keys"
    names = [f"client-{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as several:
        secrets = list(several.map(lambda name: new_key(place, name), names))
    keys = ApiKeys(place, EventLog(StringIO()))
    assert [keys.owner(f"Bearer {secret}") for secret in secrets] == names


@pytest.mark.parametrize("text", ["a b c\n", "a\n", "a " + "x" * 64 + "\n", "a g" + "0" * 63 + "\n"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    place = tmp_path / "api.keys"
    place.write_text(text)
    with pytest.raises(UsageError, match="chmod 600"):
        ApiKeys(place, EventLog(StringIO()))
    place.chmod(0o600)
    with pytest.raises(UsageError, match="line 1"):
        ApiKeys(place, EventLog(StringIO()))


def test_without_keys_only_this_machine_is_served(tmp_path: Path) -> None:
    for bind in ("127.0.0.1:8000", "localhost:0", "[::1]:8000"):
        ApiConfig("tcp://a:1", bind=bind)
    for bind in ("0.0.0.0:8000", "192.168.1.1:80", "[::]:8000"):
        with pytest.raises(UsageError, match="open to other machines"):
            ApiConfig("tcp://a:1", bind=bind)
        ApiConfig("tcp://a:1", bind=bind, api_keys=tmp_path)
    for bind in ("8000", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", ":80", "127.0.0.1:" + 5000 * "9"):
        with pytest.raises(UsageError, match="give HOST:PORT"):
            ApiConfig("tcp://a:1", bind=bind)


def test_a_client_over_its_budget_of_time_is_told_the_same_wait_in_header_and_text() -> None:
    said = api_error(OverSpent(40))
    assert said.status == 429 and said.headers["Retry-After"] == "40" and "try again in 40 s" in said.message


def test_the_desk_gives_places_in_order_and_refuses_beyond_its_queue() -> None:
    async def scene() -> None:
        desk = RequestQueue(places=1, queue=2)
        order: list[str] = []

        async def wait(name: str) -> None:
            await desk.take()
            order.append(name)

        await desk.take()
        first, second = asyncio.ensure_future(wait("first")), asyncio.ensure_future(wait("second"))
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as error:
            await desk.take()
        assert error.value.status == 429 and error.value.headers["Retry-After"] == "1"
        first.cancel()  # a client that goes away leaves the queue
        await asyncio.sleep(0)
        assert desk.waiting == 1
        third = asyncio.ensure_future(wait("third"))
        await asyncio.sleep(0)
        desk.give_back()
        await second
        desk.give_back()
        await third
        assert order == ["second", "third"] and desk.busy == 1
        fourth = asyncio.ensure_future(wait("fourth"))
        await asyncio.sleep(0)
        desk.close()
        with pytest.raises(ApiError) as error:
            await fourth
        assert error.value.status == 503
        desk.give_back()
        assert desk.busy == 0

    asyncio.run(scene())


def test_a_place_given_to_who_leaves_at_that_moment_is_the_next_ones() -> None:
    async def scene() -> None:
        desk = RequestQueue(places=1, queue=5)
        await desk.take()
        leaves, stays = asyncio.ensure_future(desk.take()), asyncio.ensure_future(desk.take())
        await asyncio.sleep(0)
        desk.give_back()
        leaves.cancel()
        await asyncio.wait_for(stays, 5)
        assert desk.busy == 1 and leaves.cancelled()

    asyncio.run(scene())
