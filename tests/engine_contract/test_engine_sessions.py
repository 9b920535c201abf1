"""What every engine must do with sessions: stream, pause, resume, forget, and tell what it uses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from io import StringIO

import pytest

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.interface import MakeEngine
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from cloud_verifier.observing.metrics import COUNTERS, GAUGES
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import OptionsError
from specdec.link.wire import ErrorDown, Tokens
from specdec.models import LoadedModel, Prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.engine_contract.contract import (
    GREEDY,
    SAMPLED,
    SETTINGS,
    Client,
    answer_of,
    check_whole_answer,
    ending_options,
    key_of,
    prompt_of,
)
from tests.helpers.servers import Pair, patiently_connected
from tests.helpers.waiting import until


@pytest.mark.parametrize("name", SETTINGS)
def test_alone_it_streams_what_the_target_says(client: Client, target: LoadedModel, name: str) -> None:
    client.open(1, prompt_of(1), SETTINGS[name], stream=True)
    client.work()
    assert client.streamed(1) == answer_of(target, prompt_of(1), SETTINGS[name])


def test_a_stream_ends_with_the_eos(client: Client, target: LoadedModel) -> None:
    options, _ = ending_options(target, 4)
    client.open(1, prompt_of(3), options, stream=True)
    client.work()
    assert client.streamed(1) == answer_of(target, prompt_of(3), options)


def test_a_draft_ends_a_stream_and_the_stream_goes_on_when_told(client: Client, target: LoadedModel) -> None:
    right = answer_of(target, prompt_of(2), SAMPLED)
    client.open(2, prompt_of(2), SAMPLED, stream=True)
    while len(client.messages_of(2)) < 4:
        client.work(1)
    client.draft(2, 2, right[2:9])  # from before what has come meanwhile
    client.work()
    verdict = client.last(2)
    assert (verdict.last, verdict.token) == (7, right[9])  # type: ignore[union-attr]
    count = len(client.messages_of(2))
    client.work()
    assert len(client.messages_of(2)) == count, "it waits for drafts"
    client.alone(2)
    client.work()
    told = [one for one in client.messages_of(2)[count:] if isinstance(one, Tokens)]
    assert told[0].base == 10 and [token for one in told for token in one.ids] == right[10:]


def test_nothing_streams_to_who_does_not_read(client: Client, target: LoadedModel) -> None:
    right = answer_of(target, prompt_of(2), GREEDY)
    client.open(2, prompt_of(2), stream=True)
    client.open(12, prompt_of(2), stream=True)
    while len(client.messages_of(2)) < 3:
        client.work(1)
    client.pause(2, True)
    client.work(1)
    count = len(client.messages_of(2))
    client.work(60)
    assert len(client.messages_of(2)) <= count + 1 and client.streamed(12) == right
    client.pause(2, False)
    client.work()
    assert client.streamed(2) == right


def test_a_session_that_is_closed_says_nothing_more_and_holds_nothing(
    client: Client, target: LoadedModel
) -> None:
    for session in (1, 2):
        client.open(session, prompt_of(session), SAMPLED, stream=True)
    while len(client.messages_of(1)) < 3:
        client.work(1)
    assert client.engine.kv_admitted()[key_of(1)] > 0
    client.close(1)
    client.engine.work_off()
    count = len(client.messages_of(1))
    client.work()
    assert len(client.messages_of(1)) == count
    assert client.streamed(2) == answer_of(target, prompt_of(2), SAMPLED)
    assert key_of(1) not in client.engine.kv_admitted()


def test_a_session_opened_again_under_its_number_is_a_new_one(client: Client, target: LoadedModel) -> None:
    client.open(1, prompt_of(1), stream=True)
    while len(client.messages_of(1)) < 4:
        client.work(1)
    client.said.clear()
    client.open(1, prompt_of(2), SAMPLED, stream=True)
    client.work()
    assert client.streamed(1) == answer_of(target, prompt_of(2), SAMPLED)


@pytest.mark.parametrize("name", ["greedy", "all", "penalty"])
def test_an_answer_goes_on_from_what_was_verified_before(
    client: Client, target: LoadedModel, name: str
) -> None:
    options = SETTINGS[name]
    right = answer_of(target, prompt_of(4), options)
    for session, cut in enumerate((1, 7, len(right) - 1), start=1):
        opened = client.opened(session, prompt_of(4), options, history=right[:cut])
        assert (opened.token, opened.limit) == (right[cut], options.max_new_tokens)
        if cut + 4 < len(right):
            verdict = client.verdict(session, cut + 1, right[cut + 1 : cut + 3])
            assert (verdict.last, verdict.token) == (2, right[cut + 3])
    client.open(9, prompt_of(4), options, history=right[:5], stream=True)
    client.work()
    assert client.streamed(9, right[:5]) == right


def test_another_engine_goes_on_where_one_has_stopped(
    client: Client, target: LoadedModel, make_for: Callable[[LoadedModel], MakeEngine]
) -> None:
    right = answer_of(target, prompt_of(5), SAMPLED)
    client.open(1, prompt_of(5), SAMPLED, stream=True)
    while len(client.messages_of(1)) < 5:
        client.work(1)
    client.engine.stop()
    begun = client.streamed(1)
    other = Client(make_for(target))
    other.open(1, prompt_of(5), SAMPLED, history=begun, stream=True)
    other.work()
    assert other.streamed(1, begun) == right
    other.engine.stop()


def test_it_works_in_a_thread_of_its_own_until_it_is_stopped(client: Client, target: LoadedModel) -> None:
    thread = threading.Thread(target=client.engine.run)
    thread.start()
    client.open(1, prompt_of(1), stream=True)
    right = answer_of(target, prompt_of(1), GREEDY)
    until(lambda: client.streamed(1) == right, 60, lambda: str(client.said))
    client.engine.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_what_comes_once_it_has_been_stopped_is_no_failure(
    make_for: Callable[[LoadedModel], MakeEngine], seeing_target: LoadedModel
) -> None:
    client = Client(make_for(seeing_target))
    client.open(1, prompt_of(1))
    client.work()
    client.engine.stop()
    said = len(client.said)
    client.open(2, prompt_of(2, 1, seeing_target))  # its pictures would be prepared by a pool that is closed
    client.engine.work_off()
    assert not [one for one in client.said[said:] if isinstance(one[1], ErrorDown)]


def test_it_tells_what_it_does_and_holds(client: Client, target: LoadedModel) -> None:
    client.open(1, prompt_of(1))
    client.open(2, prompt_of(2))
    client.work()
    right = answer_of(target, prompt_of(1), GREEDY)
    client.verdict(1, 1, right[1:5])
    load, gauges = client.engine.load, client.engine.gauges()
    assert load.forwards >= 2 and load.rows >= 5 and load.busy_s > 0 and load.tokens == 5
    assert set(gauges) <= set(GAUGES) and set(client.engine.counters()) <= set(COUNTERS)
    assert 0 < gauges["kv_admitted_bytes"] <= gauges["kv_budget_bytes"]
    assert set(client.engine.kv_admitted()) == {key_of(1), key_of(2)}


def test_pictures_are_seen(make_for: Callable[[LoadedModel], MakeEngine], seeing_target: LoadedModel) -> None:
    target = seeing_target
    client = Client(make_for(target))
    try:
        for session, pictures in ((1, 1), (2, 2)):
            prompt = prompt_of(session, pictures, target)
            check_whole_answer(client, target, session, prompt, SAMPLED, (4, 2, 6))
        check_whole_answer(client, target, 3, prompt_of(3), GREEDY, (4,))
        client.open(4, Prompt((40, target.image_pad_id or 0, 41), (b"no picture",)))
        client.open(5, Prompt((40, 41), prompt_of(1, 1, target).images))
        client.work()
        assert client.refused(4).code == client.refused(5).code == "refused"
        right = answer_of(target, prompt_of(1, 1, target), SAMPLED)
        assert client.opened(6, prompt_of(1, 1, target), SAMPLED, history=right[:4]).token == right[4]
    finally:
        client.engine.stop()


@pytest.mark.slow
@pytest.mark.parametrize("options", [GREEDY, SETTINGS["all"], GenerationOptions(24, stop=("\x1b", "e"))])
def test_edges_get_the_targets_answer_with_every_method_it_can(
    make_for: Callable[[LoadedModel], MakeEngine], text_pair: Pair, options: GenerationOptions
) -> None:
    """Over the wire; stop strings, too, are completed inside drafts."""
    config = ServerConfig(model=text_pair.target.path, bind="tcp://127.0.0.1:0")
    server = Server(config, text_pair.target, EventLog(StringIO()), make_engine=make_for(text_pair.target))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    can = server._engine.can
    able = {
        "ar": True,
        "sd": True,
        "sd+overlap:stream": can.several,
        "sd+leave:tokens": can.several,
        "fsd": True,
        "auto": True,
        "sd+tree:8x3": can.trees,
        "dssd": can.sampled or options.temperature == 0.0,
    }
    try:
        with patiently_connected(server.bind) as link:
            right = generate_local(text_pair.target, prompt_of(6), options)
            for method, can_do in able.items():
                decoder = EdgeDecoder(link, text_pair.draft, method, tokenizer=text_pair.target.tokenizer)
                if not can_do:
                    with pytest.raises(OptionsError, match="the engine of this verifier"):
                        list(decoder.generate(prompt_of(6), options))
                    continue
                said = [token for ids in decoder.generate(prompt_of(6), options) for token in ids]
                assert said == right or method == "dssd", method
    finally:
        server.stop()
        thread.join(timeout=30)
    assert not thread.is_alive()
