"""Adjusted logits: equal to the library's processors row by row, whatever was a draft; settings, refused or sent."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specdec.errors import ModelError, OptionsError, ProtocolError
from specdec.link import wire
from specdec.link.convert import sampling_from_wire, sampling_to_wire
from specdec.models import Prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.sampling.choice import Adjuster
from tests.helpers.servers import Pair

VOCABULARY = 40
PROMPT = (3, 7, 7, 11)
EOS = frozenset({0, 39})
ALL = GenerationOptions(60, repetition_penalty=1.3, logit_bias=((5, 2.5), (7, -3.0)), min_new_tokens=4)
SINGLE = [
    GenerationOptions(60, repetition_penalty=1.3),
    GenerationOptions(60, repetition_penalty=0.7),
    GenerationOptions(60, logit_bias=((5, 2.5), (7, -3.0))),
    GenerationOptions(60, min_new_tokens=4),
]


def adjuster(options: GenerationOptions) -> Adjuster:
    return Adjuster(options, PROMPT, EOS, VOCABULARY)


def random_rows(count: int, seed: int = 0) -> Tensor:
    return 4 * torch.randn(count, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def library_row(options: GenerationOptions, row: Tensor, before: list[int]) -> Tensor:
    """One row after the library's processors, in the order of its `generate`; before: the answer so far."""
    from transformers.generation import logits_process as library

    ids = torch.tensor([[*PROMPT, *before]])
    scores = row[None].clone()
    if options.logit_bias:
        bias = {(token,): value for token, value in options.logit_bias}
        scores = library.SequenceBiasLogitsProcessor(sequence_bias=bias)(ids, scores)
    scores = library.RepetitionPenaltyLogitsProcessor(options.repetition_penalty)(ids, scores)
    if options.min_new_tokens:
        shortest = library.MinNewTokensLengthLogitsProcessor(len(PROMPT), options.min_new_tokens, sorted(EOS))
        scores = shortest(ids, scores)
    return scores[0]


class TestRows:
    @pytest.mark.parametrize(
        "options", [*SINGLE, ALL], ids=lambda o: f"{o.repetition_penalty}-{o.logit_bias}"
    )
    def test_a_chains_rows_equal_the_librarys(self, options: GenerationOptions) -> None:
        answer, draft = [7, 0, 20], [20, 5, 39, 1, 20]
        rows = random_rows(len(draft) + 1)
        expected = [library_row(options, row, answer + draft[:place]) for place, row in enumerate(rows)]
        assert torch.equal(adjuster(options).chain(rows, answer, draft), torch.stack(expected))

    @pytest.mark.parametrize(
        "options", [*SINGLE, ALL], ids=lambda o: f"{o.repetition_penalty}-{o.logit_bias}"
    )
    def test_a_trees_rows_equal_the_librarys(self, options: GenerationOptions) -> None:
        ids, parents = [9, 5, 9, 30, 2, 2], [-1, -1, 1, 0, 2, 3]
        paths = [[], [9], [5], [5, 9], [9, 30], [5, 9, 2], [9, 30, 2]]
        rows = random_rows(len(ids) + 1)
        expected = torch.stack(
            [library_row(options, row, [1, *path]) for row, path in zip(rows, paths, strict=True)]
        )
        one = adjuster(options)
        assert torch.equal(one.nodes(rows, [1], ids, parents), expected)
        assert torch.equal(
            one.nodes(rows[-2:], [1], ids, parents), expected[-2:]
        )  # only what is new of a tree

    def test_at_the_very_start_only_the_prompt_counts(self) -> None:
        row = random_rows(1)
        assert torch.equal(adjuster(ALL).chain(row, []), library_row(ALL, row[0], [])[None])

    def test_rows_that_came_in_are_left_as_they_were(self) -> None:
        rows = random_rows(3)
        before = rows.clone()
        adjuster(ALL).chain(rows, [1], [2, 3])
        assert torch.equal(rows, before)

    def test_without_settings_the_very_same_rows_come_back(self) -> None:
        rows = random_rows(3)
        one = adjuster(GenerationOptions(temperature=0.8, top_k=5))
        assert not one.active
        assert one.chain(rows, [1], [2, 3]) is rows
        assert one.nodes(rows, [1], [2, 3], [-1, -1]) is rows

    def test_what_can_never_be_said_stays_impossible(self) -> None:
        rows = random_rows(2)
        rows[:, [3, 5]] = float("-inf")
        assert torch.isinf(adjuster(ALL).chain(rows, [5], [3])[:, [3, 5]]).all()

    @pytest.mark.slow
    @settings(max_examples=60, deadline=None)
    @given(
        ids=st.lists(st.integers(0, VOCABULARY - 1), max_size=12),
        cuts=st.tuples(st.integers(0, 12), st.integers(0, 12)),
        options=st.sampled_from([*SINGLE, ALL]),
    )
    def test_it_does_not_matter_what_of_an_answer_was_a_draft(
        self, ids: list[int], cuts: tuple[int, int], options: GenerationOptions
    ) -> None:
        """The row after the last id, from any split of the ids into verified answer and draft, as chain or tree."""
        rows = random_rows(len(ids) + 1)
        expected = adjuster(options).chain(rows[-1:], ids)
        for cut in cuts:
            answer, draft = ids[:cut], ids[cut:]
            one = adjuster(options)
            mine = rows[-len(draft) - 1 :]
            assert torch.equal(one.chain(mine, answer, draft)[-1:], expected)
            parents = list(range(-1, len(draft) - 1))
            assert torch.equal(one.nodes(mine, answer, draft, parents)[-1:], expected)


class TestSettings:
    def test_biases_are_kept_in_the_order_of_the_ids(self) -> None:
        given = GenerationOptions(logit_bias=((9, 1), (2, -0.5)))
        assert given == GenerationOptions(logit_bias=((2, -0.5), (9, 1.0)))
        assert hash(given) == hash(GenerationOptions(logit_bias=((2, -0.5), (9, 1.0))))

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"repetition_penalty": 0.0}, "repetition_penalty"),
            ({"repetition_penalty": float("nan")}, "repetition_penalty"),
            ({"min_new_tokens": -1}, "min_new_tokens"),
            ({"min_new_tokens": 2.5}, "whole number"),
            ({"logit_bias": ((1, float("inf")),)}, "a bias of logit_bias"),
            ({"logit_bias": ((-1, 1.0),)}, "a token id of logit_bias"),
            ({"logit_bias": ((1, 1.0), (1, 2.0))}, "twice"),
            ({"logit_bias": ((1,),)}, "pairs"),
            ({"logit_bias": {1: 2.0}}, "pairs"),
            ({"logit_bias": tuple((token, 1.0) for token in range(2000))}, "at most"),
            ({"stop": "end"}, "a list of"),
            ({"stop": ("",)}, "valid text"),
            ({"stop": ("x" * 5000,)}, "valid text"),
            ({"stop": ("\ud800",)}, "valid text"),
            ({"stop": ("\ufffd",)}, "valid text"),
        ],
        ids=str,
    )
    def test_bad_values_are_refused_in_one_line(self, fields: dict[str, object], said: str) -> None:
        with pytest.raises(OptionsError, match=said) as refusal:
            GenerationOptions(**fields)  # type: ignore[arg-type]
        assert "\n" not in str(refusal.value)

    def test_a_bias_outside_the_vocabulary_is_refused(self, text_pair: Pair) -> None:
        options = GenerationOptions(5, logit_bias=((100_000, 1.0),))
        with pytest.raises(ModelError, match="id 100000"):
            generate_local(text_pair.target, Prompt((1, 2)), options)

    def test_they_survive_the_way(self) -> None:
        message = wire.Open(1, False, sampling_to_wire(ALL), [1])
        arrived = wire.decode_up(wire.encode(message))
        assert isinstance(arrived, wire.Open)
        assert sampling_from_wire(arrived.sampling) == ALL

    def test_stop_strings_do_not_travel(self) -> None:
        """Who gives the answer out decides by its text, and closes the session."""
        assert sampling_to_wire(replace(ALL, stop=("end",))) == sampling_to_wire(ALL)

    @pytest.mark.parametrize(
        "fields",
        [{"repetition_penalty": -1.0}, {"logit_bias": [(1, float("nan"))]}, {"logit_bias": [(1, 1.0)] * 2}],
        ids=str,
    )
    def test_bad_values_on_the_wire_are_a_protocol_error(self, fields: dict[str, object]) -> None:
        with pytest.raises(ProtocolError):
            sampling_from_wire(wire.Sampling(9, 0.0, 0, 0, 1.0, 0.0, **fields))  # type: ignore[arg-type]

    @settings(max_examples=100, deadline=None)
    @given(
        counts=st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**31 - 1)),
        numbers=st.tuples(st.floats(), st.floats(), st.floats(), st.floats()),
        biases=st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats()), max_size=4),
        shortest=st.integers(0, 2**31 - 1),
    )
    @pytest.mark.slow
    def test_any_values_on_the_wire_are_options_or_a_protocol_error(
        self,
        counts: tuple[int, int, int],
        numbers: tuple[float, float, float, float],
        biases: list[tuple[int, float]],
        shortest: int,
    ) -> None:
        (longest, seed, top_k), (temperature, top_p, min_p, penalty) = counts, numbers
        sampling = wire.Sampling(longest, temperature, seed, top_k, top_p, min_p, penalty, biases, shortest)
        message = wire.decode_up(wire.encode(wire.Open(1, False, sampling, [1])))
        assert isinstance(message, wire.Open)
        try:
            options = sampling_from_wire(message.sampling)
        except ProtocolError as error:
            assert "\n" not in str(error)
        else:
            assert sampling_from_wire(sampling_to_wire(options)) == options

    def test_too_many_biases_on_the_wire_are_a_protocol_error(self) -> None:
        sampling = wire.Sampling(9, 0.0, 0, 0, 1.0, 0.0, logit_bias=[(token, 1.0) for token in range(2000)])
        with pytest.raises(ProtocolError):
            wire.decode_up(wire.encode(wire.Open(1, False, sampling, [1])))
