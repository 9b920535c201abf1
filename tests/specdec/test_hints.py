"""Hints: outcomes against a slow reference of loops over the full head; shortlists that forget nothing needed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from specdec.drafting import Draft
from specdec.models import LoadedModel, chat_prompt
from specdec.options import GenerationOptions
from specdec.sampling import process_logits
from specdec.sampling.noise import gumbel_noise
from specdec.verifying import Verifier
from specdec.verifying.exits import ExitAdapters, Exits, use_exits
from specdec.verifying.hints import vocabulary
from specdec.verifying.hints.hints import MIN_CONFIDENCE, ExitOutcome, HintMaker
from tests.helpers.servers import Pair

pytestmark = pytest.mark.slow

OPTIONS = {
    "greedy": GenerationOptions(40),
    "noise": GenerationOptions(40, temperature=0.9, seed=7),
    "noise, cut": GenerationOptions(40, temperature=0.7, seed=3, top_k=40, top_p=0.9, min_p=0.01),
    "adjusted": GenerationOptions(
        40, repetition_penalty=1.3, logit_bias=((5, 3.0), (70, -2.0)), min_new_tokens=9
    ),
    "adjusted noise": GenerationOptions(40, temperature=0.8, seed=1, repetition_penalty=1.2),
    "nearly full": GenerationOptions(8),
}


def make_exits(model: LoadedModel, frequent: Sequence[int] = (), seed: int = 0) -> Exits:
    """Exits after the first two layers, each with an opinion of its own."""
    torch.manual_seed(seed)
    adapters = ExitAdapters(2, model.runner.hidden_size, 16)
    torch.nn.init.normal_(adapters.up, std=0.3)
    return Exits(model, adapters, (0, 1), frequent=frequent)


def reference_rows(
    exits: Exits,
    layer: int,
    hidden: torch.Tensor,
    draft: Draft,
    answer: list[int],
    options: GenerationOptions,
) -> list[list[float]]:
    """The probability of every token after every node, from the full head and loops."""
    model = exits.model
    rows = []
    for index, logits in enumerate(exits.logits(layer, hidden).tolist()):
        said = answer + ids_to(draft, index - 1)
        context = set(chat_prompt(model, QUESTION).ids) | set(said)
        for token, bias in options.logit_bias:
            logits[token] += bias
        for token in context if options.repetition_penalty != 1.0 else ():
            penalty = options.repetition_penalty
            logits[token] = logits[token] / penalty if logits[token] >= 0 else logits[token] * penalty
        for token in model.eos_token_ids if len(said) < options.min_new_tokens else ():
            logits[token] = -math.inf
        if options.temperature > 0:
            logits = process_logits(torch.tensor([logits]), options)[0].tolist()
            noise = gumbel_noise(options.seed, torch.tensor(len(said)), torch.arange(len(logits))).tolist()
            logits = [value + more for value, more in zip(logits, noise, strict=True)]
        top = max(logits)
        weights = [math.exp(value - top) for value in logits]
        total = sum(weights)
        rows.append([weight / total for weight in weights])
    return rows


def ids_to(draft: Draft, node: int) -> list[int]:
    """Ids on the path from the root to a node, -1 being the root."""
    ids = []
    while node >= 0:
        ids.append(draft.ids[node])
        node = node - 1 if draft.parents is None else draft.parents[node]
    return ids[::-1]


def reference_outcomes(
    model: LoadedModel, rows: list[list[float]], draft: Draft, answer: list[int], limit: int
) -> dict[tuple[int, int], float]:
    """The probability of every outcome that a draft could follow."""
    parents = draft.parents or range(-1, len(draft.ids) - 1)
    outcomes = {}
    for node in range(-1, len(draft.ids)):
        path, chance, at = ids_to(draft, node), 1.0, node
        while at >= 0:
            chance *= rows[parents[at] + 1][draft.ids[at]]
            at = parents[at]
        children = {draft.ids[child] for child in range(len(draft.ids)) if parents[child] == node}
        if len(answer) + len(path) + 1 >= limit or model.eos_token_ids & set(path):
            continue
        for token, share in enumerate(rows[node + 1]):
            if token not in children and token not in model.eos_token_ids:
                outcomes[node + 1, token] = chance * share
    return outcomes


QUESTION = "where is the ball?"
PARENTS = [None, None, (-1, 0, 0, 1, -1, 4, 4), (-1, -1, -1)]


class Round:
    """A draft on its way through the target, with an observer."""

    def __init__(self, model: LoadedModel, options: GenerationOptions, seed: int) -> None:
        self.model, self.options = model, options
        self.rng = random.Random(seed)
        self.prompt = chat_prompt(model, QUESTION)
        self.verifier = Verifier(model, options)
        self.verifier.open(self.prompt)
        for _ in range(self.rng.randrange(3)):
            self.verifier.step()

    def draft(self, maker: HintMaker) -> Draft:
        """Of what the exits think likely and of what nobody does."""
        parents = self.rng.choice(PARENTS)
        count = self.rng.randrange(1, 5) if parents is None else len(parents)
        base = len(self.verifier.answer)
        likely: list[int] = []

        def look(layer: int, hidden: torch.Tensor) -> None:
            if layer == 1:
                likely.extend(maker.exits.logits(1, hidden)[-1].topk(3).indices.tolist())

        probe = Verifier(self.model, self.options)
        probe.open(self.prompt, observer=look)
        ids = [self.rng.choice([*likely[-3:], *range(3, 250, 60)]) for _ in range(count)]
        draft = Draft(base, tuple(ids), parents)
        nodes = self.verifier.usable(draft)
        return draft if len(nodes) == count else Draft(base, tuple(ids[: len(nodes)]) if not parents else ())

    def run(
        self, maker: HintMaker, draft: Draft
    ) -> tuple[dict[int, list[ExitOutcome]], dict[int, torch.Tensor]]:
        """What the exits say while the draft is verified, and the rows that they saw, by layer."""
        answer = list(self.verifier.answer)
        hints = maker.session(self.prompt.ids, self.options).watch(draft, answer, self.verifier.limit)
        found: dict[int, list[ExitOutcome]] = {}
        seen: dict[int, torch.Tensor] = {}

        def observer(layer: int, hidden: torch.Tensor) -> None:
            seen[layer] = hidden[hidden.shape[0] - len(draft.ids) - 1 :]
            found[layer] = hints.after(layer, hidden)

        self.verifier.verify(draft, observer)
        return found, seen


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seed", range(6))
def test_the_likeliest_outcomes_are_those_of_a_slow_reference(pair: Pair, name: str, seed: int) -> None:
    model, options = pair.target, OPTIONS[name]
    exits = make_exits(model)
    maker = HintMaker(exits)
    case = Round(model, options, seed)
    answer = list(case.verifier.answer)
    draft = case.draft(maker)
    found, seen = case.run(maker, draft)
    assert found[2] == []
    for layer in (0, 1):
        rows = reference_rows(exits, layer, seen[layer], draft, answer, options)
        expected = reference_outcomes(model, rows, draft, answer, case.verifier.limit)
        best = sorted((chance for chance in expected.values() if chance >= MIN_CONFIDENCE), reverse=True)[:4]
        assert [hint.confidence for hint in found[layer]] == pytest.approx(best, rel=1e-3)
        for hint in found[layer]:
            assert expected[hint.last, hint.token] == pytest.approx(hint.confidence, rel=1e-3)
        assert len({(hint.last, hint.token) for hint in found[layer]}) == len(found[layer])


@pytest.mark.parametrize("name", ["greedy", "noise", "adjusted"])
def test_an_exit_that_knows_the_targets_mind_has_the_verdict_among_its_hints(
    text_pair: Pair, name: str
) -> None:
    """It is shown what only the last layer makes of the draft."""
    model, options = text_pair.target, OPTIONS[name]
    maker = HintMaker(Exits(model, ExitAdapters(1, model.runner.hidden_size, 4), (1,)))
    prompt = chat_prompt(model, QUESTION)
    verifier = Verifier(model, options)
    verifier.open(prompt)
    session = maker.session(prompt.ids, options)
    hits = 0
    for ids in ((9, 10), (30, 31, 32), (8,), (), (60, 61)):
        draft = Draft(len(verifier.answer), ids)
        watch = session.watch(draft, verifier.answer, verifier.limit)
        last: list[torch.Tensor] = []

        def keep(layer: int, hidden: torch.Tensor, last: list[torch.Tensor] = last) -> None:
            last[:] = [hidden]

        judgement = verifier.verify(draft, keep)
        with torch.inference_mode():
            hits += (judgement.last, judgement.token) in {
                (hint.last, hint.token) for hint in watch.after(1, last[0])
            }
    assert hits >= 4


def test_an_end_of_the_answer_is_no_hint(text_pair: Pair) -> None:
    model = text_pair.target
    end = min(model.eos_token_ids)
    options = GenerationOptions(40, logit_bias=((end, 100.0),))
    case = Round(model, options, 0)
    case.verifier.answer = [9]
    found, _ = case.run(HintMaker(make_exits(model)), Draft(1, (end, 5, 6)))
    assert found == {0: [], 1: [], 2: []}


def test_a_pass_without_a_row_for_the_answers_end_gives_no_hints(text_pair: Pair) -> None:
    model = text_pair.target
    hints = HintMaker(make_exits(model)).session([1, 2], OPTIONS["greedy"]).watch(Draft(0, (1, 2)), [], 40)
    with torch.inference_mode():
        assert hints.after(0, torch.randn(2, model.runner.hidden_size)) == []
        assert hints.after(0, torch.full((3, model.runner.hidden_size), math.nan)) == []


class TestShortlists:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(vocabulary, "FREQUENT", 24)
        monkeypatch.setattr(vocabulary, "OWN", 6)
        monkeypatch.setattr(vocabulary, "WHOLE", 0)

    @pytest.mark.parametrize("frequent", [(), tuple(range(100, 130))])
    @pytest.mark.parametrize("name", ["greedy", "noise"])
    def test_outcomes_are_those_of_the_reference_without_other_tokens(
        self, pair: Pair, name: str, frequent: tuple[int, ...]
    ) -> None:
        model, options = pair.target, OPTIONS[name]
        exits = make_exits(model, frequent)
        maker = HintMaker(exits)
        session = maker.session([200, 201, 202], options)
        rng = random.Random(5)
        for _ in range(20):
            ids = tuple(rng.choice([3, 110, 140, 150, 160, 170, 180, 190, 199]) for _ in range(4))
            draft, answer = Draft(1, ids), [rng.randrange(250)]
            hidden = torch.randn(5, model.runner.hidden_size) * 3
            with torch.inference_mode():
                found = session.watch(draft, answer, 40).after(1, hidden)
                again = maker.session([7], options).watch(Draft(1, (8,)), [9], 40).after(1, hidden[:2])
            assert again
            known = [session.vocabulary.token(column) for column in range(session.vocabulary.size)]
            assert len(set(known)) == len(known) == 30
            assert set(ids) | set(answer) | model.eos_token_ids <= set(known)
            with torch.inference_mode():
                shortlist = session.vocabulary.shortlist()
            assert shortlist is not None and known == shortlist.ids.tolist()
            torch.testing.assert_close(shortlist.weight, exits.shortlist(known).weight)
            rows = [
                [share if token in known else 0.0 for token, share in enumerate(row)]
                for row in reference_rows(exits, 1, hidden, draft, answer, options)
            ]
            totals = [sum(row) for row in rows]
            rows = [[share / total for share in row] for row, total in zip(rows, totals, strict=True)]
            expected = reference_outcomes(model, rows, draft, answer, 40)
            best = sorted((c for c in expected.values() if c >= MIN_CONFIDENCE), reverse=True)[:4]
            assert [hint.confidence for hint in found] == pytest.approx(best, rel=1e-3)
            for hint in found:
                assert expected[hint.last, hint.token] == pytest.approx(hint.confidence, rel=1e-3)

    def test_a_draft_of_too_many_rare_tokens_is_asked_about_in_full(self, text_pair: Pair) -> None:
        model = text_pair.target
        maker = HintMaker(make_exits(model))
        ids = tuple(range(100, 120))
        hidden = torch.randn(21, model.runner.hidden_size)
        with torch.inference_mode():
            found = maker.session([1], OPTIONS["greedy"]).watch(Draft(1, ids), [3], 40).after(1, hidden)
            whole = HintMaker(make_exits(model))
            whole.vocabulary.buffer = None
            alike = whole.session([1], OPTIONS["greedy"]).watch(Draft(1, ids), [3], 40).after(1, hidden)
        assert found == alike and found

    def test_a_session_is_told_the_same_whoever_else_asks(self, text_pair: Pair) -> None:
        model = text_pair.target
        rng = random.Random(2)
        rounds = [
            (tuple(rng.randrange(250) for _ in range(3)), torch.randn(4, model.runner.hidden_size))
            for _ in range(12)
        ]

        def ask(maker: HintMaker, others: bool) -> list[list[ExitOutcome]]:
            session, other = (maker.session([n, n + 1], OPTIONS["greedy"]) for n in (60, 90))
            said = []
            for ids, hidden in rounds:
                if others:
                    other.watch(Draft(1, ids[::-1]), [70], 40).after(0, hidden)
                said.append(session.watch(Draft(1, ids), [4], 40).after(0, hidden))
            return said

        with torch.inference_mode():
            alone = ask(HintMaker(make_exits(model)), False)
            assert ask(HintMaker(make_exits(model)), True) == alone and any(alone)

    def test_sessions_that_share_a_pass_are_told_the_same_after_every_layer(self, text_pair: Pair) -> None:
        """Each layer's exits have their turn for all sessions before the next layer's."""
        model = text_pair.target
        maker = HintMaker(Exits(model, ExitAdapters(2, model.runner.hidden_size, 4), (0, 1)))
        rare = [token for token in range(model.vocab_size) if token not in maker.vocabulary.column]
        hidden, _ = model.runner.head_rows(torch.tensor(rare[:4]))  # what says just these tokens
        draft = Draft(1, tuple(rare[8:11]))
        session, other = (maker.session(tokens, OPTIONS["greedy"]) for tokens in (rare[:20], rare[-20:]))
        with torch.inference_mode():
            alone = session.watch(draft, [3], 40).after(1, 20 * hidden)
            watched, beside = session.watch(draft, [3], 40), other.watch(Draft(1, ()), [3], 40)
            watched.after(0, 20 * hidden)
            beside.after(0, 20 * hidden)
            assert watched.after(1, 20 * hidden) == alone and alone


def test_an_exit_says_what_its_adapter_was_trained_to_say(pair: Pair) -> None:
    exits = make_exits(pair.target)
    picked = [5, 9, 200]
    with torch.inference_mode():
        hidden = torch.randn(4, pair.target.runner.hidden_size) * 5
        slot = exits.layers.index(1)
        trained = pair.target.runner.logits(exits.adapters.one(slot, hidden))
        torch.testing.assert_close(exits.logits(1, hidden), trained)
        torch.testing.assert_close(exits.logits(1, hidden, exits.shortlist(picked)), trained[:, picked])


@pytest.mark.parametrize(
    ("agreement", "most", "layers"),
    [
        ([0.27, 0.32, 0.36, 0.41, 0.54, 0.68, 0.79], 4, (1, 3, 4, 5)),
        ([0.93, 0.95, 0.97, 0.98, 0.99, 0.99, 1.0], 1, (0,)),
        ([0.01, 0.01, 0.01, 0.01, 0.9, 0.9, 0.9], 1, (0,)),
        ([], 4, (2, 3, 4, 5)),
    ],
    ids=["hard text", "easy", "none early", "unknown"],
)
def test_auto_takes_the_few_exits_that_are_worth_it(
    agreement: list[float], most: int, layers: tuple[int, ...]
) -> None:
    exits = SimpleNamespace(
        model=SimpleNamespace(runner=SimpleNamespace(layer_count=8)),
        layers=tuple(range(7)),
        agreement=dict(enumerate(agreement)),
    )
    assert use_exits(cast(Exits, exits), "auto", most) == layers
    assert layers[0] + 1 <= 4
