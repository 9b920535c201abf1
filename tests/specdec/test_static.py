"""The static decode path, on the CPU: the same answers as the ordinary forward, from a bounded number of shapes.

On a GPU its operations are Triton kernels and its forwards CUDA graphs: benchmarks/gpu/check_kernels.py compares those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from specdec.drafting import ChainDrafter, DraftModel
from specdec.errors import ModelError
from specdec.models import LoadedModel, Prompt, extend_many, load_model
from specdec.models.direct.modules import TowerOperations
from specdec.models.loaded import record_forwards
from specdec.models.local import generate_local
from specdec.models.static import BUCKETS, MAX_ROWS
from specdec.models.static.batch import MAX_NODES, fits
from specdec.models.static.forward import StaticForward
from specdec.models.static.operations import MOST_FUSED, Inputs, TorchOperations
from specdec.models.static.recording import EagerRuns
from specdec.models.static.tower import tower_of
from specdec.options import GenerationOptions
from specnav.doctor.gpu.counting import Reads
from tests.helpers import tiny_models as tiny

PROMPT = Prompt(tuple(range(10, 40)))


@pytest.fixture
def model() -> LoadedModel:
    """A text model of its own, so that nothing of it is shared with other tests."""
    return load_model(tiny.built_pairs() / "text-target", dtype="float32")


def make_reference(model: LoadedModel) -> StaticForward:
    """The static path in plain torch, run eagerly."""
    runner = model.runner
    operations = TorchOperations(runner.heads, runner.kv_heads, runner.head_dim, runner.eps, None)
    static = StaticForward(runner, operations, EagerRuns(), operations)
    static.fused_rows = MOST_FUSED
    return static


@contextmanager
def static_path(model: LoadedModel, **parts: Any) -> Iterator[StaticForward]:
    """The model on its static path."""
    held = model.runner.static
    model.runner.static = parts.pop("static", None) or make_reference(model)
    try:
        yield model.runner.static
    finally:
        model.runner.static = held


def everything(model: LoadedModel) -> list[Tensor]:
    """Logits of chains, trees that grow, rollback, batches and a long run, from two sessions."""
    one, other = model.new_session(), model.new_session()
    found = [one.prefill(model.encode(PROMPT)), other.prefill(model.encode(Prompt(PROMPT.ids[:7])))]
    found.append(one.extend([3, 4, 5]))
    one.rollback(31)
    found += extend_many([one.extension([7]), other.extension([8, 9, 11, 12, 13], last_only=True)])
    found.append(one.extend_tree([5, 6, 7, 8], [-1, -1, 0, 2]))
    found += extend_many([one.extension([9, 10], [1, 3]), other.extension([1])])
    one.keep_path([0, 2], [3])
    found.append(one.extend_tree([2], [0]))
    one.rollback(32)
    found.append(one.extend(list(range(1, 21)), last_only=True))
    found.append(other.extend(list(range(MAX_ROWS // 2))))
    return found


@pytest.mark.parametrize("name", ["text-target", "text-draft", "vision-target"])
def test_logits_equal_those_of_the_ordinary_forward(name: str) -> None:
    model = load_model(tiny.built_pairs() / name, dtype="float32")
    ordinary = everything(model)
    with static_path(model):
        static = everything(model)
    for number, (one, two) in enumerate(zip(ordinary, static, strict=True)):
        assert torch.allclose(one, two, atol=5e-5), number


def test_greedy_answers_are_the_same_and_read_the_device_once_a_token(model: LoadedModel) -> None:
    options = GenerationOptions(40)
    ordinary = generate_local(model, PROMPT, options)
    with static_path(model):
        assert generate_local(model, PROMPT, options) == ordinary
        session = model.new_session()
        session.prefill(model.encode(PROMPT))
        rows = session.extend([5, 6, 7])
        picks, start = rows.greedy_picks  # type: ignore[attr-defined]
        assert picks.read()[0][start : start + 3] == rows.argmax(-1).tolist()


def test_logits_that_are_adjusted_lose_the_picks_that_came_with_them(model: LoadedModel) -> None:
    """A planted fault is at hand: picks made before the bias would be taken for those behind it."""
    banned = generate_local(model, PROMPT, GenerationOptions(4))[1]
    options = GenerationOptions(12, logit_bias=((banned, -100.0),))
    ordinary = generate_local(model, PROMPT, options)
    with static_path(model):
        assert generate_local(model, PROMPT, options) == ordinary
    assert banned not in ordinary


@pytest.mark.parametrize(
    "options", [GenerationOptions(64), GenerationOptions(64, temperature=0.8, seed=11, top_p=0.9)]
)
def test_a_chain_in_one_launch_is_the_chain_that_single_steps_draft(
    model: LoadedModel, options: GenerationOptions
) -> None:
    def drafts() -> list[tuple[int, ...]]:
        drafter = ChainDrafter(DraftModel(model, options))
        drafter.at_once = True
        drafter.prefill(PROMPT)
        answer: list[int] = []
        made = []
        for number in range(6):
            made.append(drafter.chain(answer, 5).draft.ids)
            answer += [*made[-1][: number % 4], 20 + number]
        return made

    ordinary = drafts()
    with static_path(model):
        before = model.runner.passes
        assert drafts() == ordinary
        assert model.runner.passes > before


@pytest.mark.parametrize("options", [GenerationOptions(64), GenerationOptions(64, temperature=0.8, seed=11)])
def test_a_chain_in_one_launch_tells_the_chances_that_single_steps_tell(
    model: LoadedModel, options: GenerationOptions
) -> None:
    def drafts(at_once: bool) -> tuple[list[tuple[int, ...]], list[float]]:
        drafter = ChainDrafter(DraftModel(model, options))
        drafter.at_once, drafter.tells_chances = at_once, True
        drafter.prefill(PROMPT)
        made, chances, answer = [], [], []
        for number in range(3):
            proposal = drafter.chain(answer, 6)
            made.append(proposal.draft.ids)
            chances += proposal.chances
            answer += [*proposal.draft.ids[:number], 20 + number]
        return made, chances

    ordinary = drafts(at_once=False)
    with static_path(model):
        static = drafts(at_once=True)
    assert static[0] == ordinary[0]
    assert static[1] == pytest.approx(ordinary[1], abs=1e-4) and len(static[1]) == sum(map(len, static[0]))


def test_a_chain_that_cannot_be_replayed_falls_back_to_single_steps(model: LoadedModel) -> None:
    with static_path(model) as static:
        drafter = ChainDrafter(DraftModel(model, GenerationOptions(64)))
        drafter.at_once = True
        drafter.prefill(PROMPT)
        expected = drafter.chain([5, 6], 5).draft.ids
        static._owner = -1  # another thread's
        other = ChainDrafter(DraftModel(model, GenerationOptions(64)))
        other.at_once = True
        other.prefill(PROMPT)
        assert other.chain([5, 6], 5).draft.ids == expected


class Shapes(TorchDispatchMode):
    """Which operations meet which shapes. reads: what would make a program wait for its device."""

    def __init__(self) -> None:
        super().__init__()
        self.met: set[tuple[Any, ...]] = set()
        self.reads = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = torch.utils._pytree.tree_leaves((args, kwargs or {}))
        self.met.add((str(function), *(tuple(one.shape) for one in tensors if isinstance(one, Tensor))))
        return function(*args, **kwargs or {})


class Watched(EagerRuns):
    """Recordings whose every replay is watched: what a CUDA graph would have to do."""

    def __init__(self) -> None:
        self.shapes = Shapes()

    def record(self, work: Callable[[], Any]) -> Any:
        def watched() -> Any:
            with self.shapes, Reads() as reads:
                found = work()
            self.shapes.reads += reads.count
            return found

        return super().record(watched)


def answer_of(model: LoadedModel, tokens: int, sessions: int = 1) -> Watched:
    """What was met while `sessions` of different lengths decoded `tokens` together."""
    recorder = Watched()
    operations = TorchOperations(
        model.runner.heads, model.runner.kv_heads, model.runner.head_dim, model.runner.eps, None
    )
    with static_path(model, static=StaticForward(model.runner, operations, recorder)):
        many = [model.new_session() for _ in range(sessions)]
        for number, session in enumerate(many):
            session.most_tokens, session.at_once = 300, True
            session.prefill(model.encode(Prompt(tuple(range(10, 20 + 3 * number)))))
        recorder.shapes.met.clear()
        for step in range(tokens):
            extend_many([session.extension([step % 50]) for session in many])
    return recorder


@pytest.mark.slow
def test_the_shapes_of_an_answer_do_not_depend_on_its_length(model: LoadedModel) -> None:
    """A shape budget: 200 tokens meet no shape that 5 have not met; nothing is read within a recorded forward."""
    few, many = answer_of(model, 5), answer_of(model, 200)
    assert many.shapes.met == few.shapes.met
    assert not many.shapes.reads
    eight = answer_of(model, 20, sessions=8)
    assert len(eight.shapes.met) <= 2 * len(few.shapes.met)
    assert not eight.shapes.reads


class Careless(TorchOperations):
    """The reference with a planted fault."""

    def __init__(self, fault: str, *sizes: Any) -> None:
        super().__init__(*sizes)
        self._fault = fault

    def attend(self, layer: Any, index: int, qkv: Tensor, table: Any, inputs: Inputs) -> Tensor:
        assert inputs.batch is not None
        total = int(inputs.batch.numbers[8, 0])
        if self._fault == "length":
            torch.zeros(total)[:]
        elif self._fault == "read":
            inputs.numbers[0, 0].item()
        elif self._fault == "mask":
            torch.ones(1, total).triu()
        return super().attend(layer, index, qkv, table, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["length", "read", "mask"])
def test_planted_faults_exceed_the_shape_budget(model: LoadedModel, fault: str) -> None:
    runner = model.runner
    recorder = Watched()
    operations = Careless(fault, runner.heads, runner.kv_heads, runner.head_dim, runner.eps, None)
    with static_path(model, static=StaticForward(runner, operations, recorder)):
        session = model.new_session()
        session.most_tokens, session.at_once = 300, True
        session.prefill(model.encode(PROMPT))
        session.extend([1])
        met = set(recorder.shapes.met)
        for step in range(6):
            session.extend([step])
    assert recorder.shapes.met != met or recorder.shapes.reads


class PlantedClock:
    """Time that only planted operations take: what else the machine does must not decide which are faster."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def perf_counter(self) -> float:
        return self.seconds


class OddFused(TorchOperations):
    """Fused products with a planted fault."""

    def __init__(self, fault: str, clock: PlantedClock, *sizes: Any) -> None:
        super().__init__(*sizes)
        self._fault = fault
        self._clock = clock

    def add_product(self, hidden: Tensor, given: Tensor, product: Any) -> Tensor:
        if self._fault == "raises":
            raise RuntimeError("no kernel image is available")
        self._clock.seconds += 3.0 if self._fault == "slow" else 1.0
        found = super().add_product(hidden, given, product)
        return found * {"wrong": 1.2, "no number": float("nan")}.get(self._fault, 1.0)


class TimedPlain(TorchOperations):
    """Ordinary operations; a layer has one gate and two products that may be fused."""

    def __init__(self, clock: PlantedClock, *sizes: Any) -> None:
        super().__init__(*sizes)
        self._clock = clock

    def gate(self, layer: Any, gate_up: Tensor) -> Tensor:
        self._clock.seconds += 4.0
        return super().gate(layer, gate_up)


@pytest.mark.parametrize(
    ("fault", "said"),
    [("raises", "no kernel image"), ("wrong", "% off"), ("no number", "nan% off"), ("slow", ""), ("", "")],
)
def test_products_are_fused_only_where_a_device_does_it_rightly_and_faster(
    model: LoadedModel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    runner, clock = model.runner, PlantedClock()
    sizes = (runner.heads, runner.kv_heads, runner.head_dim, runner.eps, None)
    static = StaticForward(runner, TimedPlain(clock, *sizes), EagerRuns(), OddFused(fault, clock, *sizes))
    monkeypatch.setattr("specdec.models.static.forward.time", clock)
    with static_path(model, static=static):  # gives it caches of zeros: the reference operations read unused slots
        static.try_out()  # says nothing of fused products: without them the path is as good
        static.choose_fused()
    assert static.fused_rows == (0 if fault else MOST_FUSED)
    lines = [one.getMessage() for one in caplog.records if "not fused" in one.getMessage()]
    assert len(lines) == bool(said) and all(said in line for line in lines)
    expected = generate_local(model, PROMPT, GenerationOptions(8))
    with static_path(model, static=static):
        assert generate_local(model, PROMPT, GenerationOptions(8)) == expected


class OfOneThread(EagerRuns):
    """Recordings that only the thread that made them may replay."""

    def record(self, work: Callable[[], Any]) -> Any:
        owner = threading.get_ident()

        def checked() -> Any:
            assert threading.get_ident() == owner, "replayed by another thread"
            return work()

        return super().record(checked)


def test_the_thread_that_claims_a_model_records_and_replays(model: LoadedModel) -> None:
    runner = model.runner
    operations = TorchOperations(runner.heads, runner.kv_heads, runner.head_dim, runner.eps, None)
    expected = generate_local(model, PROMPT, GenerationOptions(8))
    with static_path(model, static=StaticForward(runner, operations, OfOneThread())):
        assert (
            generate_local(model, PROMPT, GenerationOptions(8)) == expected
        )  # as prices are timed on loading
        answers: list[Any] = []

        def engine() -> None:
            try:
                with torch.inference_mode():
                    record_forwards(model)
                answers.append(generate_local(model, PROMPT, GenerationOptions(8)))
            except BaseException as error:
                answers.append(error)

        thread = threading.Thread(target=engine)
        thread.start()
        thread.join()
        assert answers == [expected]
        assert generate_local(model, PROMPT, GenerationOptions(8)) == expected  # on the ordinary path


class Refusing(EagerRuns):
    """Recordings that fail as those of a product that waits for its device."""

    def record(self, work: Callable[[], Any]) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")


def test_what_cannot_be_recorded_runs_unrecorded_with_one_line(
    model: LoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    runner = model.runner
    operations = TorchOperations(runner.heads, runner.kv_heads, runner.head_dim, runner.eps, None)
    expected = generate_local(model, PROMPT, GenerationOptions(8))

    recorder: Any = object.__new__(
        type("Graphs", (), {"record": Refusing.record, "forget": lambda self: None})
    )
    with static_path(model, static=StaticForward(runner, operations, recorder)):
        assert generate_local(model, PROMPT, GenerationOptions(8)) == expected
    lines = [one.getMessage() for one in caplog.records if "CUDA graphs" in one.getMessage()]
    assert len(lines) == 1 and "not permitted when stream is capturing" in lines[0]


def test_hidden_states_are_seen_behind_the_layers_that_were_named(model: LoadedModel) -> None:
    layers = model.runner.layer_count
    cuts = [0, layers // 2]

    def seen() -> dict[int, Tensor]:
        session = model.new_session()
        session.prefill(model.encode(PROMPT))
        found: dict[int, Tensor] = {}
        session.extend([4, 5, 6], observer=lambda layer, hidden: found.update({layer: hidden.clone()}))
        return found

    ordinary = seen()
    with static_path(model) as static:
        static.observe(cuts)
        observed = seen()
        assert list(observed) == list(range(layers))
        for layer in (*cuts, layers - 1):
            assert torch.allclose(observed[layer], ordinary[layer], atol=1e-4)


def test_batches_that_do_not_fit_take_the_ordinary_path(model: LoadedModel) -> None:
    with static_path(model) as static:
        session = model.new_session()
        session.prefill(model.encode(PROMPT))
        recordings = static.recordings
        session.extend(list(range(MAX_ROWS + 1)))
        assert static.recordings == recordings
        observed: list[int] = []
        session.extend([1, 2], observer=lambda layer, hidden: observed.append(layer))
        assert static.recordings == recordings and len(observed) == model.runner.layer_count
        with pytest.raises(ModelError, match="outside the vocabulary"):
            session.extend([model.vocab_size])


def test_large_trees_and_trees_across_a_window_are_not_laid_out() -> None:
    from specdec.models.attention.segment import Segment

    def tree(nodes: int) -> Segment:
        depths = tuple(range(nodes))
        return Segment(None, 10, nodes, torch.ones(nodes, nodes).tril().bool(), depths, depths)

    assert fits(tree(4), {0}) and fits(tree(4), {16})
    assert not fits(tree(4), {3})
    assert not fits(tree(MAX_NODES + 1), {0})


def test_buckets_double() -> None:
    assert all(after == 2 * before for before, after in pairwise(BUCKETS))


class WrongNorms(TowerOperations):
    """Norms that are too large, on all rows but the first."""

    def add_norm(self, *given: Any) -> tuple[Tensor, Tensor]:
        hidden, normed = super().add_norm(*given)
        normed[1:] *= 1.01
        return hidden, normed


class NoNumbers(TowerOperations):
    def quick_gelu(self, *given: Any) -> Tensor:
        return super().quick_gelu(*given) * float("nan")


class NotCompiled(TowerOperations):
    def turn(self, *given: Any) -> tuple[Tensor, Tensor]:
        raise RuntimeError("PassManager::run failed\nwith a long story")


@pytest.mark.parametrize(
    ("operations", "reason"),
    [
        (TowerOperations(), ""),
        (WrongNorms(), "by 0.01"),
        (NoNumbers(), "by nan"),
        (NotCompiled(), "(PassManager::run failed)"),
    ],
)
def test_the_recorded_tower_sees_what_the_library_sees_whatever_its_operations_do(
    operations: TowerOperations, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForImageTextToText.from_pretrained(tiny.built_pairs() / "vision-target")
    visual, config = model.model.visual, model.config.vision_config
    caplog.clear()
    tower = tower_of(visual, config, operations, EagerRuns())
    assert tower is not None and (tower.tower.operations is operations) == (not reason)
    lines = [record.getMessage() for record in caplog.records if record.name == "specdec.models"]
    assert len(lines) == bool(reason) and all(reason in line for line in lines)
    torch.manual_seed(0)
    for grids in ([(1, 4, 6)], [(1, 4, 6)], [(1, 2, 4), (1, 4, 4)]):
        patches = sum(t * h * w for t, h, w in grids)
        features = config.in_channels * config.temporal_patch_size * config.patch_size**2
        pixels = torch.randn(patches, features)
        with torch.inference_mode():
            expected = visual(pixels, grid_thw=torch.tensor(grids)).pooler_output
            assert torch.allclose(tower(pixels, grids), expected, atol=1e-5)


def test_a_forward_that_runs_ahead_shows_its_layers_with_the_event_behind_them(model: LoadedModel) -> None:
    """All parts are launched first, so that work on what they show keeps no later part waiting."""
    order: list[str] = []

    class Ahead(EagerRuns):
        runs_ahead = True

        def record(self, work: Callable[[], Any]) -> Any:
            replay, found = super().record(work)

            def noted() -> None:
                order.append("launch")
                replay()

            return noted, found

        def mark(self) -> object:
            return f"event {order.count('launch')}"

    runner = model.runner
    operations = TorchOperations(runner.heads, runner.kv_heads, runner.head_dim, runner.eps, None)
    with static_path(model, static=StaticForward(runner, operations, Ahead())) as static:
        static.observe([0])
        session = model.new_session()
        session.prefill(model.encode(PROMPT))
        order.clear()
        seen: list[Any] = []
        session.extend(
            [4], observer=lambda layer, hidden: (order.append("show"), seen.append(hidden.reached))
        )
        assert order[:2] == ["launch", "launch"] and "launch" not in order[2:]
        assert seen[0] == "event 1" and seen[-1] == "event 2"


class Tape(TorchDispatchMode):
    """What a CUDA graph holds: operations with the very tensors they read and wrote, and none of the Python between.

    `attend` is one entry: the reference finds the cache of a tile on the host; the kernel follows an address.
    """

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], list[Tensor]]] = []
        self.fresh: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, "the host reads from a graph"
        found = func(*args, **(kwargs or {}))
        self.note(func, args, kwargs or {}, found)
        return found

    def note(self, work: Callable[..., Any], args: Any, kwargs: Any, found: Any) -> None:
        made = [
            one
            for one in (found if isinstance(found, (tuple, list)) else (found,))
            if isinstance(one, Tensor)
        ]
        self.entries.append((work, args, kwargs, made))
        given = {one.untyped_storage().data_ptr() for one in args if isinstance(one, Tensor)}
        self.fresh += [one for one in made if one.untyped_storage().data_ptr() not in given]

    def replay(self) -> None:
        for work, args, kwargs, held in self.entries:
            found = work(*args, **kwargs)
            made = [
                one
                for one in (found if isinstance(found, (tuple, list)) else (found,))
                if isinstance(one, Tensor)
            ]
            for old, new in zip(held, made, strict=True):
                if old.data_ptr() != new.data_ptr():  # a view shows what its base holds already
                    old.copy_(new)


class Taped(EagerRuns):
    """Records as CudaGraphs does: a replay runs no Python of ours."""

    def __init__(self, operations: TorchOperations) -> None:
        self._tape: Tape | None = None
        self.replays = 0
        attend = operations.attend

        def noted(*args: Any) -> Tensor:
            tape = self._tape
            if tape is None:
                return attend(*args)
            with _disable_current_modes():
                found = attend(*args)
            tape.note(attend, args, {}, found)
            return found

        operations.attend = noted  # type: ignore[method-assign]

    def record(self, work: Callable[[], Any]) -> tuple[Callable[[], None], Callable[[], Any]]:
        work()
        with Tape() as self._tape:
            found = work()
        tape, self._tape = self._tape, None

        def replay() -> None:
            self.replays += 1
            tape.replay()

        for one in tape.fresh:  # capture runs nothing: what is read before a replay is wrong
            if one.is_floating_point():
                one.fill_(float("nan"))
        return replay, lambda: found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["text-target", "vision-target"])
def test_replays_that_run_no_python_of_ours_give_the_same_logits_and_answers(name: str) -> None:
    model = load_model(tiny.built_pairs() / name, dtype="float32")
    ordinary, options = everything(model), GenerationOptions(40)
    answer = generate_local(model, PROMPT, options)
    runner = model.runner
    operations = TorchOperations(runner.heads, runner.kv_heads, runner.head_dim, runner.eps, None)
    taped = Taped(operations)
    with torch.inference_mode(False), static_path(model, static=StaticForward(runner, operations, taped)):
        for number, (one, two) in enumerate(zip(ordinary, everything(model), strict=True)):
            assert torch.allclose(one, two, atol=5e-5), number
        assert generate_local(model, PROMPT, options) == answer and taped.replays > 12


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True])
def test_a_chain_from_a_replay_that_runs_no_python_of_ours_is_the_same(
    model: LoadedModel, sampled: bool
) -> None:
    options = GenerationOptions(64, temperature=0.8 * sampled, seed=5)

    def drafts() -> list[tuple[int, ...]]:
        drafter = ChainDrafter(DraftModel(model, options))
        drafter.at_once = True
        drafter.prefill(PROMPT)
        return [drafter.chain(list(range(20, 20 + done)), 5).draft.ids for done in (0, 1, 3, 7, 9, 14)]

    ordinary, runner = drafts(), model.runner
    operations = TorchOperations(runner.heads, runner.kv_heads, runner.head_dim, runner.eps, None)
    with static_path(model, static=StaticForward(runner, operations, Taped(operations))):
        assert drafts() == ordinary
