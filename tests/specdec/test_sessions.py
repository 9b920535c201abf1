"""Model sessions: KV cache, rollback, trees, interleaving. Everything is compared with the library's own forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from specdec.models import Extension, LoadedModel, ModelError, Prompt, chat_prompt, extend_many
from specdec.models.plans import Prepared
from specdec.models.session import SessionCursor, grow_sight
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair
from tests.specdec.library import assert_close, library_logits


def images_for(model: LoadedModel, seed: int = 1) -> list[bytes]:
    return [tiny.picture(seed)] if model.is_multimodal else []


def test_prefill_and_extend_by_any_steps_equal_the_librarys_forward(pair: Pair) -> None:
    model = pair.target
    prompt = chat_prompt(model, "the quick brown fox", images=images_for(model))
    answer = [7, 9, 30, 200, 41, 5, 77, 10]
    expected = library_logits(model, prompt, answer)
    for steps in ([8], [1] * 8, [3, 1, 4], [5, 3]):
        session = model.new_session()
        rows = [session.prefill(model.encode(prompt))[None]]
        position = 0
        for step in steps:
            rows.append(session.extend(answer[position : position + step]))
            position += step
        assert_close(torch.cat(rows), expected)


def test_last_only_is_the_last_row(pair: Pair) -> None:
    session = pair.target.new_session()
    session.prefill(pair.target.encode(chat_prompt(pair.target, "abc")))
    every = session.extend([4, 5, 6])
    session.rollback(session.length - 3)
    assert torch.allclose(session.extend([4, 5, 6], last_only=True), every[-1:], atol=1e-6)


def test_rollback_then_other_tokens_equals_a_fresh_run(pair: Pair) -> None:
    model = pair.target
    prompt = chat_prompt(model, "roll back", images=images_for(model))
    session = model.new_session()
    session.prefill(model.encode(prompt))
    start = session.length
    session.extend([11, 12, 13, 14, 15])
    session.rollback(start + 2)
    rolled = session.extend([99, 98, 97])
    fresh = model.new_session()
    fresh.prefill(model.encode(prompt))
    expected = fresh.extend([11, 12, 99, 98, 97])[2:]
    assert_close(rolled, expected)
    assert session.length == fresh.length == start + 5


def test_cache_keeps_its_contents_while_it_grows(text_pair: Pair) -> None:
    model = text_pair.target
    prompt = chat_prompt(model, "grow")
    answer = [(7 * i) % 250 for i in range(300)]  # more than one doubling
    session = model.new_session()
    rows = [session.prefill(model.encode(prompt))[None]]
    for token in answer:
        rows.append(session.extend([token]))
    assert_close(torch.cat(rows), library_logits(model, prompt, answer))


def test_two_sessions_with_different_images_interleaved_equal_each_alone(vision_pair: Pair) -> None:
    """Rotary state on the model object would mix them up."""
    model = vision_pair.target
    prompts = [
        chat_prompt(model, "first", images=[tiny.picture(1)]),
        chat_prompt(model, "second and longer", images=[tiny.picture(2, 112, 224), tiny.picture(3)]),
    ]
    answers = [[1, 2, 3, 4], [50, 60, 70, 80]]
    sessions = [model.new_session(), model.new_session()]
    rows: list[list[torch.Tensor]] = [[], []]
    for which, session in enumerate(sessions):
        rows[which].append(session.prefill(model.encode(prompts[which]))[None])
    for step in range(4):
        for which, session in enumerate(sessions):
            rows[which].append(session.extend([answers[which][step]]))
    for which in (0, 1):
        assert_close(torch.cat(rows[which]), library_logits(model, prompts[which], answers[which]))


def test_sessions_of_one_model_share_a_pass(pair: Pair) -> None:
    """Rows of several sessions in one forward say what each would have said alone."""
    model = pair.target
    prompts = [
        chat_prompt(model, text, images=images_for(model, i)) for i, text in enumerate(["a", "bcd", "ef"])
    ]
    together = [model.new_session() for _ in prompts]
    for session, prompt in zip(together, prompts, strict=True):
        session.prefill(model.encode(prompt))
    logits = extend_many(
        [
            Extension(together[0], (5, 6, 7)),
            Extension(together[1], (8,)),
            Extension(together[2], (9, 10, 11), parents=(-1, 0, 0)),
        ]
    )
    expected = [library_logits(model, prompts[0], [5, 6, 7])[1:], library_logits(model, prompts[1], [8])[1:]]
    assert_close(logits[0], expected[0])
    assert_close(logits[1], expected[1])
    assert_close(logits[2][1:2], library_logits(model, prompts[2], [9, 10])[2:])
    assert_close(logits[2][2:3], library_logits(model, prompts[2], [9, 11])[2:])


def test_every_branch_of_a_tree_equals_its_path_alone(pair: Pair) -> None:
    model = pair.target
    prompt = chat_prompt(model, "tree", images=images_for(model))
    session = model.new_session()
    session.prefill(model.encode(prompt))
    session.extend([3])
    first = session.extend_tree([10, 11, 12], [-1, -1, 0])
    second = session.extend_tree([13, 14], [1, 2])
    rows = torch.cat([first, second])
    paths = {0: [10], 1: [11], 2: [10, 12], 3: [11, 13], 4: [10, 12, 14]}
    for node, path in paths.items():
        assert_close(rows[node : node + 1], library_logits(model, prompt, [3, *path])[-1:])
    session.keep_path([0, 2, 4])
    assert_close(session.extend([20]), library_logits(model, prompt, [3, 10, 12, 14, 20])[-1:])


def test_what_grew_behind_a_kept_path_stays_and_grows_on(pair: Pair) -> None:
    """Branches behind the path, siblings among them, at other places in the cache than before."""
    model = pair.target
    prompt = chat_prompt(model, "tree", images=images_for(model))
    session = model.new_session()
    session.prefill(model.encode(prompt))
    session.extend([3])
    session.extend_tree([10, 11, 12, 13, 14, 15], [-1, -1, 1, 1, 2, 0])
    session.keep_path([1], [2, 3, 4])  # 11; then 12, 13, and 14 behind 12
    rows = session.extend_tree([20, 21, 22], [1, 2, -1])
    for row, path in zip(rows, ([13, 20], [12, 14, 21], [22]), strict=True):
        assert_close(row[None], library_logits(model, prompt, [3, 11, *path])[-1:])
    session.keep_path([0, 2, 4])
    assert_close(session.extend([30]), library_logits(model, prompt, [3, 11, 12, 14, 21, 30])[-1:])


def test_tree_is_forgotten_by_rollback(text_pair: Pair) -> None:
    model = text_pair.target
    prompt = chat_prompt(model, "tree")
    session = model.new_session()
    session.prefill(model.encode(prompt))
    session.extend_tree([10, 11], [-1, -1])
    with pytest.raises(ModelError, match="tree"):
        session.extend([1])
    session.rollback(session.length)
    assert_close(session.extend([20]), library_logits(model, prompt, [20])[1:])


def test_bad_trees_and_paths_are_refused(text_pair: Pair) -> None:
    session = text_pair.target.new_session()
    session.prefill(text_pair.target.encode(chat_prompt(text_pair.target, "x")))
    with pytest.raises(ModelError, match="parent"):
        session.extend_tree([1, 2], [1, -1])
    session.rollback(session.length)
    session.extend_tree([1, 2], [-1, 0])
    with pytest.raises(ModelError, match="path"):
        session.keep_path([1])
    with pytest.raises(ModelError, match="is not below the path"):
        session.keep_path([], [1, 0])


def test_tree_nodes_see_their_ancestors_and_themselves_only_however_the_tree_grew() -> None:
    whole = grow_sight(torch.empty(0, 0, dtype=torch.bool), [-1, -1, 0, 2])
    assert whole.int().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]
    assert torch.equal(grow_sight(grow_sight(torch.empty(0, 0, dtype=torch.bool), [-1, -1]), [0, 2]), whole)


def test_ids_outside_the_vocabulary_and_beyond_the_context_are_refused(text_pair: Pair) -> None:
    model = text_pair.target
    session = model.new_session()
    session.prefill(model.encode(Prompt((1, 2, 3))))
    with pytest.raises(ModelError, match="vocabulary"):
        session.extend([model.vocab_size])
    with pytest.raises(ModelError, match="context"):
        session.extend([1] * model.context_limit)


class TestSessionCursor:
    """The cursor gives the right rows however the answer moves."""

    def test_rows_after_any_change_of_the_answer_equal_the_librarys(self, pair: Pair) -> None:
        model = pair.target
        prompt = chat_prompt(model, "follow me", images=images_for(model))
        cursor = SessionCursor(model.new_session())
        cursor.prefill(Prepared(model.encode(prompt)))
        moves: list[tuple[list[int], list[int]]] = [
            ([], []),
            ([], [4, 5, 6]),
            ([4, 5, 9], []),
            ([4, 5, 9], [1, 2, 3, 4]),
            ([4, 5, 9, 1, 2, 3, 4], [8]),
            ([4, 5, 9, 1, 7], [8, 8]),
            ([4, 5, 9, 1, 7], []),
            ([], [6, 6]),
            ([6], [6]),
        ]
        for answer, draft in moves:
            expected = library_logits(model, prompt, [*answer, *draft])[len(answer) :]
            assert_close(cursor.rows(answer, draft), expected)
            assert cursor.fed <= len(answer) + len(draft)

    def test_nothing_is_fed_twice_while_the_answer_only_grows(self, text_pair: Pair) -> None:
        model = text_pair.target
        session = model.new_session()
        cursor = SessionCursor(session)
        cursor.prefill(Prepared(model.encode(chat_prompt(model, "grow"))))
        fed: list[int] = []
        original = session.extension

        def counting(ids: list[int], *settings: Any, **others: Any) -> Extension:
            fed.extend(ids)
            return original(ids, *settings, **others)

        session.extension = counting  # type: ignore[assignment, method-assign]
        answer: list[int] = []
        for token in range(20):
            cursor.rows(answer)
            answer.append(token)
        assert fed == answer[:-1]
