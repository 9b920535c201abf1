"""Prompts that begin alike, and pictures that come again: worked out once, and never for the wrong one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from cloud_verifier.engine.engine import Engine
from cloud_verifier.engine.prompts import BLOCK, Prefixes, shared_bytes
from cloud_verifier.engine.tasks import CloseTask, OpenTask
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import Down, ErrorDown, Open, Opened, Tokens
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.store import SharedStore
from tests.cloud_verifier.engine_cloud import OPTIONS, Cloud, key_of
from tests.helpers.servers import Pair
from tests.helpers.tiny_models import picture

PLENTY = 1 << 26
EOS = (256, 257)
"""Of the tests' pairs."""


def begin(cloud: Cloud, session: int, prompt: Prompt, scope: bytes = b"", rank: int = 1) -> None:
    message = Open(session, True, sampling_to_wire(OPTIONS), list(prompt.ids), list(prompt.images))
    cloud.engine.submit(OpenTask(key_of(session), message, 0.0, rank, scope=scope))


def work_until(cloud: Cloud, over: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not over():
        cloud.engine.work_off()
        assert time.monotonic() < deadline, cloud.said


def answer(said: Sequence[tuple[int, Down]], session: int) -> list[int]:
    mine = [message for number, message in said if number == session]
    ids = [message.token for message in mine if isinstance(message, Opened) and message.token is not None]
    ids += [token for message in mine if isinstance(message, Tokens) for token in message.ids]
    return ids[:-1] if ids and ids[-1] in EOS else ids


def finish(cloud: Cloud, model: LoadedModel, prompts: dict[int, Prompt]) -> None:
    """Work until all have their answers, which are those of the model alone."""
    expected = {session: generate_local(model, prompt, OPTIONS) for session, prompt in prompts.items()}
    work_until(cloud, lambda: all(len(answer(cloud.said, s)) >= len(expected[s]) for s in prompts))
    for session in prompts:
        assert answer(cloud.said, session) == expected[session]


def rows_of(cloud: Cloud) -> int:
    return cloud.engine.load.rows


def text(length: int, last: int = 0) -> Prompt:
    return Prompt((*(40 + (7 * i) % 200 for i in range(length)), last))


def sharing(model: LoadedModel, **settings: Any) -> Cloud:
    return Cloud(model, shared_bytes=settings.pop("most", PLENTY), **settings)


@pytest.mark.slow
def test_what_a_prompt_has_in_common_with_one_before_is_not_worked_out_again(text_pair: Pair) -> None:
    cloud = sharing(text_pair.target)
    begin(cloud, 1, text(100, 1))
    finish(cloud, text_pair.target, {1: text(100, 1)})
    before, answered = rows_of(cloud), len(answer(cloud.said, 1))
    begin(cloud, 2, text(100, 2))
    finish(cloud, text_pair.target, {2: text(100, 2)})
    alone = 101 - 3 * BLOCK
    assert rows_of(cloud) - before <= alone + max(answered, len(answer(cloud.said, 2)))


@pytest.mark.slow
def test_prompts_that_come_together_are_worked_out_once(text_pair: Pair) -> None:
    cloud = sharing(text_pair.target)
    prompts = {session: text(150, session) for session in range(1, 9)}
    for session, prompt in prompts.items():
        begin(cloud, session, prompt)
    work_until(cloud, lambda: sum(isinstance(message, Opened) for _, message in cloud.said) == 8)
    assert rows_of(cloud) < 151 + 7 * (151 - 4 * BLOCK) + 8 * 20, "and what the first ones stream meanwhile"
    finish(cloud, text_pair.target, prompts)


@pytest.mark.parametrize("way", ["closed", "opened again"])
def test_who_waits_for_one_that_goes_works_it_out_itself(text_pair: Pair, way: str) -> None:
    cloud = sharing(text_pair.target)
    begin(cloud, 1, text(200, 1))
    begin(cloud, 2, text(200, 2))
    cloud.engine.work_off()
    assert not cloud.said
    if way == "closed":
        cloud.engine.submit(CloseTask(key_of(1)))
    else:
        begin(cloud, 1, text(20, 9))
    finish(cloud, text_pair.target, {2: text(200, 2)})


@pytest.mark.slow
def test_nobody_waits_for_a_lower_class(text_pair: Pair) -> None:
    cloud = sharing(text_pair.target)
    begin(cloud, 3, text(20, 3))
    finish(cloud, text_pair.target, {3: text(20, 3)})
    begin(cloud, 1, text(200, 1), rank=2)
    cloud.engine.work_off()
    begin(cloud, 2, text(200, 2), rank=0)
    cloud.engine.work_off()
    assert len(cloud.engine._waiting) == 2
    finish(cloud, text_pair.target, {1: text(200, 1), 2: text(200, 2)})


@pytest.mark.slow
def test_sessions_of_another_scope_find_nothing(text_pair: Pair) -> None:
    cloud = sharing(text_pair.target)
    begin(cloud, 1, text(100), b"one")
    finish(cloud, text_pair.target, {1: text(100)})
    before, answered = rows_of(cloud), len(answer(cloud.said, 1))
    begin(cloud, 2, text(100), b"other")
    finish(cloud, text_pair.target, {2: text(100)})
    assert rows_of(cloud) - before >= 101 + answered - 1


@pytest.mark.slow
def test_what_is_shared_gives_way_to_sessions(text_pair: Pair) -> None:
    model = text_pair.target
    tokens = 101 + OPTIONS.max_new_tokens + 128
    cloud = sharing(model, kv_bytes=int(2.5 * tokens * model.runner.kv_bytes_a_token))
    prompts = {1: text(100, 1), 2: Prompt(tuple(reversed(text(100, 2).ids)))}
    store = cloud.engine.prompts.store
    for session, prompt in prompts.items():
        begin(cloud, session, prompt)
        finish(cloud, model, {session: prompt})
        assert cloud.engine.budget.used + store.bytes <= cloud.engine.budget.total
    for session in prompts:
        cloud.engine.submit(CloseTask(key_of(session)))
    cloud.work()
    assert store.bytes <= cloud.engine.budget.total and not cloud.engine.budget.used


def test_equal_tokens_around_other_pictures_are_other_blocks() -> None:
    prefixes = Prefixes(SharedStore(PLENTY))
    ids = torch.tensor([5] * 100)

    def names(pictures: Sequence[tuple[int, bytes]], scope: bytes = b"") -> tuple[Any, ...]:
        return prefixes.prefix_of(prefixes, scope, ids, pictures).names

    first = names([(40, b"a"), (80, b"b")])
    assert len(first) == 3

    def same(pictures: Sequence[tuple[int, bytes]], scope: bytes = b"") -> list[bool]:
        return [one == other for one, other in zip(first, names(pictures, scope), strict=True)]

    assert same([(40, b"a"), (80, b"b")]) == [True, True, True]
    assert same([(40, b"a"), (80, b"c")]) == [True, True, False]
    assert same([(40, b"x"), (80, b"b")]) == [True, False, False]
    assert same([(41, b"a"), (80, b"b")]) == [True, False, False]
    assert same([(40, b"a"), (80, b"b")], b"scope") == [False, False, False]


def test_the_store_forgets_what_was_used_longest_ago() -> None:
    store = SharedStore(100)
    for name in "abc":
        store.put(name, name, 30)
    assert store.get("a") == "a"
    store.put("d", "d", 30)
    assert "b" not in store and "a" in store and store.bytes == 90
    store.put("too large", "", 101)
    store.leave(30)
    assert store.bytes == 30 and "d" in store
    store.leave(10**9)
    store.put("e", "e", 70)
    assert store.bytes == 100, "never more than it may have"


def test_by_default_an_eighth_of_the_budget_is_shared_and_no_more_than_some_prompts() -> None:
    assert shared_bytes(8000, 100) == 1000 and shared_bytes(1 << 40, 100) == 1_638_400


# -- pictures


def with_pictures(pair: Pair, *seeds: int, words: str = "look") -> Prompt:
    return chat_prompt(pair.target, words, images=[picture(seed) for seed in seeds])


@pytest.mark.slow
def test_pictures_that_wait_are_looked_at_in_one_pass_each_once(
    vision_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = sharing(vision_pair.target)
    prompts = {1: with_pictures(vision_pair, 1), 2: with_pictures(vision_pair, 1, 2), 3: with_pictures(vision_pair, 3)}
    room = cloud.engine.prompts.pictures
    look = room._look_at_some

    def look_when_all_are_ready() -> None:
        if len(room._ready) < 3:
            arrived = room._arriving.get()
            assert arrived is not None
            arrived()
            return
        monkeypatch.setattr(room, "_look_at_some", look)
        look()

    monkeypatch.setattr(room, "_look_at_some", look_when_all_are_ready)
    for session, prompt in prompts.items():
        begin(cloud, session, prompt)
    finish(cloud, vision_pair.target, prompts)
    assert (room.passes, room.looked_at) == (1, 3)
    prompts = {4: with_pictures(vision_pair, 2, 3, words="and now?")}
    begin(cloud, 4, prompts[4])
    finish(cloud, vision_pair.target, prompts)
    assert room.passes == 1, "all of them were known"
    cloud.engine.stop()


@pytest.mark.slow
def test_a_picture_that_is_none_ends_its_own_session_and_no_other(vision_pair: Pair) -> None:
    cloud = sharing(vision_pair.target)
    good, bad = with_pictures(vision_pair, 1), with_pictures(vision_pair, 2)
    cut = Prompt(bad.ids, (bad.images[0][: len(bad.images[0]) // 2],))
    begin(cloud, 1, good)
    begin(cloud, 2, cut)
    begin(cloud, 3, good)
    finish(cloud, vision_pair.target, {1: good, 3: good})
    refused = cloud.last(2)
    assert isinstance(refused, ErrorDown) and "cannot be decoded" in refused.message
    cloud.engine.stop()


@pytest.mark.slow
def test_where_a_pass_fails_each_prompt_is_tried_alone(vision_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    model = vision_pair.target
    look = model.look
    poisoned = model.decode(picture(2)).pixel_values

    def fails_on_the_second(pictures: Sequence[Any]) -> Any:
        if any(torch.equal(one.pixel_values, poisoned) for one in pictures):
            raise torch.OutOfMemoryError("made up")
        return look(pictures)

    monkeypatch.setattr(model, "look", fails_on_the_second)
    cloud = sharing(model)
    for session, seed in ((1, 1), (2, 2), (3, 3)):
        begin(cloud, session, with_pictures(vision_pair, seed))
    finish(cloud, model, {session: with_pictures(vision_pair, session) for session in (1, 3)})
    work_until(cloud, lambda: any(session == 2 for session, _ in cloud.said))
    assert isinstance(cloud.last(2), ErrorDown)
    cloud.engine.stop()


def test_a_cache_is_made_once_as_large_as_it_will_be(text_pair: Pair) -> None:
    cloud = sharing(text_pair.target)
    begin(cloud, 1, text(60))
    work_until(cloud, lambda: bool(cloud.said))
    session = cloud.engine._sessions[key_of(1)]._verifier._session  # type: ignore[union-attr]
    place = session._cache.data_ptr()
    finish(cloud, text_pair.target, {1: text(60)})
    assert session._cache.data_ptr() == place
    assert isinstance(cloud.engine, Engine)


@pytest.mark.slow
def test_pictures_are_named_once_and_not_in_the_engines_thread(
    vision_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is made of all bytes: of 16 MB it takes as long as a forward."""
    named = []

    def name_of(data: bytes, scope: bytes) -> bytes:
        named.append(threading.current_thread().name)
        return data[-8:]

    monkeypatch.setattr("cloud_verifier.engine.pictures.name_of", name_of)
    cloud = sharing(vision_pair.target)
    begin(cloud, 1, chat_prompt(vision_pair.target, "look", images=[picture(1)]))
    work_until(cloud, lambda: any(isinstance(message, Opened) for _, message in cloud.said))
    assert named == ["pictures"]
