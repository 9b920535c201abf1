"""What every engine that drafts must be able to do, held against the torch runner (held itself against the library)."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Sequence
from functools import cache

import pytest
import torch

from specdec.draft import ROOT
from specdec.models import (
    GgufOptions,
    LoadedModel,
    ModelError,
    ModelSession,
    Prompt,
    chat_prompt,
    extend_many,
    load_model,
)
from specdec.models.plans import Prepared, carry_out
from tests.helpers import drafts
from tests.helpers import tiny_models as tiny

TOLERANCE = 2e-4


@pytest.fixture(params=drafts.BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=["text", "vision"])
def model(request: pytest.FixtureRequest, backend: str) -> LoadedModel:
    return drafts.draft_on(backend, request.param)


@cache
def twin(model: LoadedModel) -> LoadedModel:
    """The same model on torch. llama.cpp never reads the epsilon of a Qwen2-VL's norms and takes 0."""
    if not model.is_multimodal:
        return drafts.draft_on(drafts.TORCH, "text")
    if model.runner.sees_layers:
        return drafts.draft_on(drafts.TORCH, "vision")
    return load_model(drafts.without_epsilon(tiny.built_pairs() / "vision-draft"))


def prompt_of(model: LoadedModel, seed: int = 1) -> Prompt:
    if not model.is_multimodal:
        return chat_prompt(model, f"the quick brown fox {seed}")
    pictures = [tiny.picture(seed), tiny.picture(seed + 1, 112, 224)][: 1 + seed % 2]
    return chat_prompt(model, ["walk", *pictures, f"to the ball {seed}"])


def expected(model: LoadedModel, prompt: Prompt, answer: Sequence[int]) -> torch.Tensor:
    """Logits [len(answer) + 1, vocab], all of it fed at once to torch."""
    session = twin(model).new_session()
    first = session.prefill(twin(model).encode(prompt))[None]
    return torch.cat([first, session.extend(answer)]) if answer else first


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.shape == theirs.shape and ours.dtype == torch.float32
    assert float((ours - theirs).abs().max()) < TOLERANCE


@pytest.mark.slow
def test_it_is_the_same_model(model: LoadedModel) -> None:
    other = twin(model)
    for name in ("vocab_size", "vocabulary_fingerprint", "eos_token_ids", "context_limit", "never_drafted"):
        assert getattr(model, name) == getattr(other, name), name
    assert prompt_of(model) == prompt_of(other)


def test_a_prompt_and_what_follows_by_any_steps(model: LoadedModel) -> None:
    answer = [7, 9, 30, 200, 41, 5, 77, 10]
    rows = expected(model, prompt_of(model), answer)
    for steps in ([8], [1] * 8, [3, 1, 4]):
        session = model.new_session()
        found = [session.prefill(model.encode(prompt_of(model)))[None]]
        place = 0
        for step in steps:
            found.append(session.extend(answer[place : place + step]))
            place += step
        assert_close(torch.cat(found), rows)


def test_last_only_is_the_last_row(model: LoadedModel) -> None:
    session = model.new_session()
    session.prefill(model.encode(prompt_of(model)))
    assert_close(session.extend([4, 5, 6], last_only=True), expected(model, prompt_of(model), [4, 5, 6])[-1:])


def test_rollback_then_other_tokens_is_a_fresh_run(model: LoadedModel) -> None:
    session = model.new_session()
    session.prefill(model.encode(prompt_of(model)))
    start = session.length
    session.extend([11, 12, 13, 14, 15])
    session.rollback(start + 2)
    assert_close(session.extend([99, 98]), expected(model, prompt_of(model), [11, 12, 99, 98])[3:])
    assert session.length == start + 4


@pytest.mark.slow
@pytest.mark.gguf
@pytest.mark.parametrize("backend", [drafts.GGUF], indirect=True)
@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_operations_is_what_torch_makes_of_it(model: LoadedModel, seed: int) -> None:
    """Chains, trees that grow, paths and parts of trees that are kept, rollback, new prompts, in any order."""
    drawn = random.Random(seed)
    ours, theirs = model.new_session(), twin(model).new_session()
    start = 0

    def both(do: object) -> None:
        mine, other = do(ours), do(theirs)  # type: ignore[operator]
        if mine is not None:
            assert_close(mine, other)
        assert ours.length == theirs.length and ours.tree.ids == theirs.tree.ids

    for step in range(40):
        what = drawn.choice(["chain", "tree", "tree", "tree", "keep", "keep", "rollback"]) if start else "prompt"
        if start and drawn.random() < 0.05:
            what = "prompt"
        ids = [drawn.randrange(250) for _ in range(drawn.randrange(1, 6))]
        if what == "prompt":
            prompt = prompt_of(model, step % 4)
            both(lambda session: session.prefill(session.model.encode(prompt)))  # noqa: B023
            start = ours.length
        elif what == "tree":
            held = len(ours.tree)
            parents = [drawn.randrange(ROOT, held + node) for node in range(len(ids))]
            both(lambda session: session.extend_tree(ids, parents))  # noqa: B023
        elif what == "keep":
            node = drawn.randrange(ROOT, len(ours.tree)) if len(ours.tree) else ROOT
            path = ours.tree.path(node) if node != ROOT else []
            below = ours.tree.below(node) if drawn.random() < 0.7 else []
            below = below[: drawn.randrange(len(below) + 1)] if drawn.random() < 0.3 else below
            both(lambda session: session.keep_path(path, below))  # noqa: B023
        elif what == "rollback" or len(ours.tree):
            keep = drawn.randrange(start, ours.length + 1)
            both(lambda session: session.rollback(keep))  # noqa: B023
        else:
            both(lambda session: session.extend(ids))  # noqa: B023


def test_sessions_share_a_forward_and_stay_apart(model: LoadedModel) -> None:
    sessions = [model.new_session() for _ in range(3)]
    for seed, session in enumerate(sessions):
        session.prefill(model.encode(prompt_of(model, seed)))
    sessions[1].extend_tree([3, 4], [-1, -1])
    found = extend_many(
        [
            sessions[0].extension([5, 6, 7]),
            sessions[1].extension([8, 9, 10], [0, 1, 2]),
            sessions[2].extension([11], last_only=True),
        ]
    )
    assert_close(found[0], expected(model, prompt_of(model, 0), [5, 6, 7])[1:])
    assert_close(found[1][2:], expected(model, prompt_of(model, 1), [3, 8, 10])[-1:])
    assert_close(found[1][1:2], expected(model, prompt_of(model, 1), [4, 9])[-1:])
    assert_close(found[2], expected(model, prompt_of(model, 2), [11])[-1:])


def test_a_prompt_that_begins_alike_keeps_what_is_alike(model: LoadedModel) -> None:
    session = model.new_session()
    encoded = model.encode(prompt_of(model))
    session.prefill(encoded)
    session.extend([5, 6, 7])
    kept = encoded.ids.shape[0] - 2
    hidden = model.embed_prompt(encoded)
    row = carry_out(session.prefill.plan(encoded, hidden=hidden, kept=kept))
    assert_close(row[None], expected(model, prompt_of(model), []))
    assert_close(session.extend([9]), expected(model, prompt_of(model), [9])[1:])
    assert isinstance(Prepared(encoded, hidden), Prepared)


def test_what_cannot_be_is_refused_and_nothing_changes(model: LoadedModel) -> None:
    session = model.new_session()
    session.prefill(model.encode(prompt_of(model)))
    for wrong in (
        lambda: session.extend([model.vocab_size]),
        lambda: session.extend([]),
        lambda: session.extend_tree([1, 2], [-1, 1]),
        lambda: session.extend_tree([1, 2], [-1]),
        lambda: session.keep_path([0]),
        lambda: session.rollback(session.length + 1),
    ):
        with pytest.raises(ModelError):
            wrong()
    session.extend_tree([1], [-1])
    with pytest.raises(ModelError, match="tree"):
        session.extend([1])
    session.rollback(session.length)
    assert_close(session.extend([9]), expected(model, prompt_of(model), [9])[1:])


def test_the_context_ends_with_one_line_and_the_session_goes_on(backend: str) -> None:
    model = drafts.draft_on(backend, "text")
    ids = tuple((7 * place) % 250 for place in range(model.context_limit - 4))
    session = model.new_session()
    session.prefill(model.encode(Prompt(ids)))
    with pytest.raises(ModelError, match="context") as refused:
        session.extend([1] * 8)
    assert "\n" not in str(refused.value)
    with pytest.raises(ModelError, match="context"):
        session.extend_tree([1] * 8, [-1] * 8)
    assert_close(session.extend([9, 8]), expected(model, Prompt(ids), [9, 8])[1:])


@pytest.mark.slow
def test_threads_draft_on_one_model(model: LoadedModel) -> None:
    found: dict[int, torch.Tensor] = {}

    def work(seed: int) -> None:
        session = model.new_session()
        rows = [session.prefill(model.encode(prompt_of(model, seed)))[None]]
        rows += [session.extend([token]) for token in range(40, 60)]
        found[seed] = torch.cat(rows)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        assert_close(found[seed], expected(model, prompt_of(model, seed), list(range(40, 60))))


def _full(session: ModelSession) -> int:
    """Fill a session's tree with branches until there is no room; returns how many."""
    for count in range(10_000):
        try:
            session.extend_tree([count % 250], [-1])
        except ModelError as error:
            assert "\n" not in str(error)
            return count
    return 10_000


@pytest.mark.gguf
class TestLlamaCpp:
    """What only this engine has limits in."""

    @pytest.mark.slow
    def test_sessions_that_are_gone_leave_their_room(self) -> None:
        model = drafts.draft_on(drafts.GGUF, "text")
        for _ in range(300):
            session = model.new_session()
            session.prefill(model.encode(Prompt((1, 2, 3))))
            session.extend_tree([5, 6, 7], [-1, -1, -1])
            session.rollback(2)
        assert_close(session.extend([9]), expected(model, Prompt((1, 2)), [9])[1:])

    def test_branches_end_with_one_line_and_come_back(self) -> None:
        model = drafts.draft_on(drafts.GGUF, "text", GgufOptions(threads=1, context=1000, kv="f32"))
        gc.collect()
        session = model.new_session()
        session.prefill(model.encode(prompt_of(model)))
        assert session.branches_left > 100
        assert _full(session) > 100 and session.branches_left <= 1
        session.rollback(session.length)
        assert session.branches_left > 100
        assert_close(session.extend([9]), expected(model, prompt_of(model), [9])[1:])

    def test_a_context_shared_by_sessions_is_full_for_all_until_one_goes(self) -> None:
        model = drafts.draft_on(drafts.GGUF, "text", GgufOptions(threads=1, context=256, kv="f32"))
        first, second = model.new_session(), model.new_session()
        long = Prompt(tuple((3 * place) % 250 for place in range(150)))
        first.prefill(model.encode(long))
        with pytest.raises(ModelError, match="context of 256 tokens is full"):
            second.prefill(model.encode(long))
        assert_close(first.extend([9]), expected(model, long, [9])[1:])
        first.evict()
        assert_close(second.prefill(model.encode(long))[None], expected(model, long, []))

    def test_what_fails_half_way_leaves_nothing_behind(self) -> None:
        """More rows than one call takes: the first call goes through, and there is no room for the second."""
        model = drafts.draft_on(drafts.GGUF, "text", GgufOptions(threads=1, context=512, kv="f32"))
        holder, session = model.new_session(), model.new_session()
        holder.prefill(model.encode(Prompt(tuple((3 * place) % 250 for place in range(300)))))
        session.prefill(model.encode(Prompt((1, 2, 3))))
        with pytest.raises(ModelError, match="context of 512 tokens is full"):
            session.extend([(5 * place) % 250 for place in range(240)])
        assert session.length == 3
        assert_close(session.extend([9, 8]), expected(model, Prompt((1, 2, 3)), [9, 8])[1:])

    def test_blocks_that_do_not_fit_into_a_head_are_refused(self) -> None:
        with pytest.raises(ModelError, match="choose another kv"):
            drafts.draft_on(drafts.GGUF, "text", GgufOptions(threads=1, kv="q8_0"))

    def test_halves_in_the_cache_are_near(self) -> None:
        model = drafts.draft_on(drafts.GGUF, "text", GgufOptions(threads=1, kv="f16"))
        session = model.new_session()
        session.prefill(model.encode(prompt_of(model)))
        rows, exact = session.extend([7, 9, 30]), expected(model, prompt_of(model), [7, 9, 30])[1:]
        assert 0 < float((rows - exact).abs().max()) < 0.5 * float(exact.std())
