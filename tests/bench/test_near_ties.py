"""Half precision: answers may part where two tokens are nearly equal, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import torch

from specdec.draft import common_length
from specdec.models import LoadedModel, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.bench.data.questions import Question
from specnav.bench.records.bench import AnswerRecord
from specnav.bench.records.summary import make_rows
from specnav.bench.runner.client import ClientRecord
from specnav.bench.runner.clients import near_ties_of, summarise
from specnav.bench.runner.loop import prompt_of
from specnav.bench.runner.near_ties import NearTies, both_ways, find_flips
from specnav.bench.runner.view import as_ar
from specnav.bench.runner.watch import Between
from specnav.bench.settings import BenchConfig
from tests.bench.made_up import sd_answer
from tests.helpers import tiny_models as tiny

pytestmark = pytest.mark.slow

OPTIONS = GenerationOptions(16)
METHODS = ("ar", "sd")
QUESTION = Question("made up", "1", ("Find the ball.", "And now the bottle."))


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model(tiny.built_pairs() / "text-target", dtype="bfloat16")


@pytest.fixture(scope="module")
def right(model: LoadedModel) -> list[list[int]]:
    said: list[list[int]] = []
    for _ in QUESTION.turns:
        said.append(generate_local(model, prompt_of(model.tokenizer, QUESTION, said), OPTIONS))
    return said


def answers(method: str, turns: Sequence[Sequence[int]]) -> list[AnswerRecord]:
    made = sd_answer("1")
    return [
        msgspec.structs.replace(made, method=method, source="made up", question_id="1", turn=turn, ids=list(ids))
        for turn, ids in enumerate(turns)
    ]


def test_logits_are_no_coarser_than_float32_allows(model: LoadedModel, right: list[list[int]]) -> None:
    """Rounded to bfloat16, many of them would be equal."""
    steps, at_once = both_ways(model, prompt_of(model.tokenizer, QUESTION, []), right[0], OPTIONS)
    assert steps.shape == at_once.shape == (len(right[0]) + 1, model.vocab_size)
    assert torch.unique(steps[0]).numel() > 0.98 * model.vocab_size
    assert not torch.equal(steps[0].to(torch.bfloat16).float(), steps[0])


def test_a_place_with_a_small_margin_is_a_near_tie_and_one_with_a_large_margin_an_error(
    model: LoadedModel, right: list[list[int]]
) -> None:
    steps, _ = both_ways(model, prompt_of(model.tokenizer, QUESTION, []), right[0], OPTIONS)
    order = steps[5].argsort(descending=True)
    wrong = [[*right[0][:5], int(order[-1]), 7], right[1]]
    given = [*answers("ar", right), *answers("sd", wrong)]
    found = find_flips(model, [QUESTION], given, ["sd"], OPTIONS)
    flips, noise = found.flips, found.noise
    (flip,) = flips
    assert (flip.method, flip.turn, flip.place) == ("sd", 0, 5)
    assert flip.margin == pytest.approx(float(steps[5, order[0]] - steps[5, order[-1]]), abs=1e-4)
    assert 0 < noise < flip.margin / 2
    rows = make_rows(given, METHODS, frozenset(METHODS), flips, noise)
    assert (rows[1].near_ties, rows[1].errors, as_ar(rows[1])) == (0, 1, "NO")
    rows = make_rows(given, METHODS, frozenset(METHODS), flips, flip.margin / 2)
    assert (rows[1].near_ties, rows[1].errors, as_ar(rows[1])) == (1, 0, "≈ 1")


def test_many_clients_are_judged_by_the_same_rule(
    model: LoadedModel, right: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = prompt_of(model.tokenizer, QUESTION, [])
    steps, _ = both_ways(model, prompt, right[0], OPTIONS)
    order = steps[5].argsort(descending=True)
    wrong, near = ((*right[0][:5], int(order[place]), 7) for place in (-1, 1))
    judge = NearTies(model, [prompt], right[:1], OPTIONS)
    assert judge.count([(0, wrong), (0, wrong)]) == 0 and judge.noise > 0
    judge.noise = float(steps[5, order[0]] - steps[5, order[1]])
    assert judge.count([(0, wrong), (0, near), (0, near)]) == 2
    record = ClientRecord(chunks=[(1.0, 2)], answers=[(0, wrong), (0, near), (0, tuple(right[0]))])
    row = summarise("sd", [record], 0.0, 2.0, [tuple(right[0])], Between({}, 0.0, 0.0), judge)
    assert (row.answers, row.wrong, row.near_ties) == (3, 1, 1)
    assert near_ties_of(BenchConfig(), model, [prompt], [tuple(right[0])]) is not None
    assert near_ties_of(BenchConfig(temperature=1.0), model, [prompt], [tuple(right[0])]) is None


def test_what_follows_a_turn_that_has_parted_is_not_looked_at(model: LoadedModel, right: list[list[int]]) -> None:
    wrong = [[*right[0][:2], 3], [1, 2, 3]]
    flips = find_flips(model, [QUESTION], [*answers("ar", right), *answers("sd", wrong)], ["sd"], OPTIONS).flips
    assert [(flip.turn, flip.place) for flip in flips] == [(0, 2)]


def test_an_answer_that_ends_earlier_parts_where_it_ends(model: LoadedModel, right: list[list[int]]) -> None:
    given = [*answers("ar", right), *answers("sd", [right[0][:4], right[1]])]
    flips = find_flips(model, [QUESTION], given, ["sd"], OPTIONS).flips
    assert flips[0].place == 4 and flips[0].margin > 0
    assert common_length([1, 2], [1, 2, 3]) == 2 and common_length([1, 2], [1, 3]) == 1


def test_same_answers_have_no_flips(model: LoadedModel, right: list[list[int]]) -> None:
    given = [*answers("ar", right), *answers("sd", right)]
    found = find_flips(model, [QUESTION], given, ["sd"], OPTIONS)
    assert found.flips == [] and found.positions == sum(len(turn) + 1 for turn in right)
    assert as_ar(make_rows(given, METHODS, frozenset(METHODS))[1]) == "yes"


def test_a_folder_is_read_in_half_precision(model: LoadedModel) -> None:
    assert model.dtype == torch.bfloat16 and Path(model.path).name == "text-target"


def test_picks_that_won_by_less_than_the_noise_are_counted(
    model: LoadedModel, right: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = torch.tensor([[1.0, 0.9, 0.0], [2.0, 0.0, 0.0], [0.0, 0.5, 0.55]])
    monkeypatch.setattr("specnav.bench.runner.near_ties.both_ways", lambda *_: (steps, steps + 0.2))
    found = find_flips(model, [QUESTION], answers("ar", right[:1]), [], OPTIONS)
    assert (found.close, found.positions) == (2, 3) and found.noise == pytest.approx(0.2)
