"""Rejection sampling over the wire: what travels, and how much."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import scipy  # its parts are imported when they are first used
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdec.drafting import Draft
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import OptionsError, ProtocolError
from specdec.link import wire
from specdec.link.convert import floats_from_wire, floats_to_wire, q_from_wire, row_from_wire, row_to_wire
from specdec.methods import get_method
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.options import GenerationOptions
from specdec.sampling import process_logits
from specdec.sampling.noise import hashed_numbers, hashed_uniform
from specdec.sampling.recoveries import Recovery
from specdec.sampling.recovery import EdgeRecovery, TargetRow, describe_row
from specdec.sampling.uniform import Purpose, uniform, uniforms
from specdec.verifying import SampledVerifier
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair, patiently_connected

pytestmark = pytest.mark.slow

METHODS = ["dsd", "dssd", "dssd-thin"]


def prompt_for(model: LoadedModel) -> Prompt:
    return chat_prompt(model, "sample", images=[tiny.picture(1)] if model.is_multimodal else [])


class TestNumbers:
    def test_purposes_and_positions_are_independent_streams(self) -> None:
        series = {
            purpose: np.concatenate([uniforms(1, purpose, position, 40) for position in range(50)])
            for purpose in Purpose
        }
        for purpose, values in series.items():
            assert scipy.stats.kstest(values, "uniform").pvalue > 1e-9, purpose
        matrix = np.corrcoef(np.stack(list(series.values())))
        assert np.abs(matrix - np.eye(len(series))).max() < 0.12

    def test_numbers_do_not_depend_on_how_many_are_taken_at_once(self) -> None:
        whole = uniforms(3, Purpose.THIN, 7, 200)
        assert whole[5:9] == uniforms(3, Purpose.THIN, 7, 4, start=5)
        assert whole[:64] == uniforms(3, Purpose.THIN, 7, 64)
        assert whole[0] == uniform(3, Purpose.THIN, 7)

    @pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
    def test_a_few_are_those_of_the_tensors_to_the_last_bit(self, seed: int) -> None:
        tokens = [-(1 << 40), -1, 0, 1, 151_935]
        for position in (0, 1, 12_345):
            whole = hashed_uniform(seed, torch.tensor(position), torch.tensor(tokens)).tolist()
            assert hashed_numbers(seed, position, tokens) == whole


class TestRows:
    @pytest.mark.parametrize(
        ("recovery", "size"),
        [(Recovery.ROW, 0), (Recovery.SAMPLES, 5), (Recovery.SPARSE, 4), (Recovery.SPARSE, 90)],
    )
    @pytest.mark.parametrize("top_k", [0, 10])
    def test_survive_the_way(self, recovery: Recovery, size: int, top_k: int) -> None:
        p = process_logits(torch.randn(1, 64), GenerationOptions(temperature=1.0, top_k=top_k))[0].exp()
        row = describe_row(p, recovery, size, seed=1, position=2, batch=0)
        message = wire.decode_down(wire.encode(row_to_wire(1, 2, 3, row, 4, 5)))
        assert isinstance(message, wire.RowDown)
        back = row_from_wire(message)
        assert torch.equal(back.p, row.p) and back.tokens == row.tokens
        assert (back.samples, back.tail) == (row.samples, row.tail)
        if back.tokens is not None:
            assert torch.equal(p[back.tokens], back.p)
            listed = back.p[: len(back.tokens) - back.samples]
            assert float(listed.sum()) + back.tail == pytest.approx(1.0, abs=1e-5)

    def test_a_row_of_a_large_vocabulary_costs_what_the_papers_say(self) -> None:
        p = torch.softmax(torch.randn(150_000) * 3, 0)
        sizes = {
            recovery: len(
                wire.encode(row_to_wire(9, 99, 2, describe_row(p, recovery, size, 1, 2, 0), 9999, 99))
            )
            for recovery, size in ((Recovery.ROW, 0), (Recovery.SAMPLES, 16), (Recovery.SPARSE, 64))
        }
        assert sizes[Recovery.ROW] > 600_000
        assert sizes[Recovery.SAMPLES] < 170
        assert sizes[Recovery.SPARSE] < 64 * 8 + 8 * 8 + 30

    @given(
        st.binary(max_size=80) | st.just(b"\0" * 8),
        st.binary(max_size=80) | st.just(b"\0" * 8),
        st.integers(0, 25),
        st.floats(0, 1),
    )
    def test_any_bytes_give_a_token_or_a_protocol_error(
        self, ids: bytes, p: bytes, samples: int, tail: float
    ) -> None:
        edge = EdgeRecovery(torch.full((8,), 0.125), seed=1, position=0)
        try:
            token = edge.token(row_from_wire(wire.RowDown(1, 1, 0, ids, p, samples, tail, 0, 0)))
        except ProtocolError:
            return
        assert token is None or 0 <= token < 8

    def test_bad_probabilities_are_refused(self) -> None:
        for data in (
            b"abc",
            struct.pack("<f", float("nan")),
            struct.pack("<f", -0.5),
            struct.pack("<f", 7.0),
        ):
            with pytest.raises(ProtocolError):
                floats_from_wire(data)
        with pytest.raises(ProtocolError, match="distribution"):
            EdgeRecovery(torch.full((8,), 0.125), 1, 0).token(TargetRow(torch.zeros(8)))


class TestOverTheWire:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("limit", [2, 40])
    def test_length_and_end_are_respected(
        self, vision_pair: Pair, servers: dict[str, str], method: str, limit: int
    ) -> None:
        pair, finishes = vision_pair, set()
        with patiently_connected(servers[pair.target.path]) as link:
            for seed in range(4):
                decoder = EdgeDecoder(link, pair.draft, method)
                options = GenerationOptions(limit, temperature=2.0, seed=seed)
                got = [t for chunk in decoder.generate(prompt_for(pair.target), options) for t in chunk]
                assert not set(got) & pair.target.eos_token_ids
                assert len(got) == limit if decoder.stats.finish == "length" else len(got) < limit
                finishes.add(decoder.stats.finish)
        assert finishes <= {"length", "eos"}

    def test_bytes_of_a_round_are_what_the_method_promises(
        self, text_pair: Pair, servers: dict[str, str]
    ) -> None:
        up: dict[str, int] = {}
        down: dict[str, int] = {}
        with patiently_connected(servers[text_pair.target.path]) as link:
            for method in METHODS:
                rounds = []
                for seed in range(6):
                    decoder = EdgeDecoder(link, text_pair.draft, method)
                    list(decoder.generate(prompt_for(text_pair.target), GenerationOptions(40, 1.0, seed)))
                    rounds += [one for one in decoder.stats.rounds if one.drafted == 4]
                up[method] = max(one.uplink_bytes for one in rounds)
                down[method] = max(one.downlink_bytes for one in rounds)
        row = 4 * text_pair.target.vocab_size
        assert up["dsd"] > 4 * row > down["dsd"] * 100
        assert up["dssd"] <= 60 and row < down["dssd"] < row + 40
        assert up["dssd-thin"] <= 63  # a second request for samples is 3 bytes more
        assert down["dssd-thin"] < 170 + 550  # four times the samples the second time

    @pytest.mark.parametrize("method", METHODS)
    def test_answers_go_on_after_a_lost_link(
        self, text_pair: Pair, servers: dict[str, str], method: str
    ) -> None:
        with patiently_connected(servers[text_pair.target.path]) as link:
            decoder = EdgeDecoder(link, text_pair.draft, method, resume_timeout_s=5)
            options = GenerationOptions(60, temperature=0.9, seed=3)
            got: list[int] = []
            cuts = [10, 30]
            for chunk in decoder.generate(prompt_for(text_pair.target), options):
                got.extend(chunk)
                if cuts and len(got) >= cuts[0]:
                    cuts.pop(0)
                    link.reset()
        assert len(got) == 60 or decoder.stats.finish == "eos"
        assert decoder.stats.resumes == 2

    def test_more_samples_and_then_the_row_are_asked_for_when_all_fail(
        self, text_pair: Pair, servers: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from specdec.sampling import recovery

        monkeypatch.setattr(recovery, "recover_from_samples", lambda *_: None)
        with patiently_connected(servers[text_pair.target.path]) as link:
            decoder = EdgeDecoder(link, text_pair.draft, "dssd-thin")
            options = GenerationOptions(20, temperature=2.0, seed=3)
            got = [t for chunk in decoder.generate(prompt_for(text_pair.target), options) for t in chunk]
        assert got
        rejected = [one for one in decoder.stats.rounds if one.accepted < one.drafted]
        assert max(one.downlink_bytes for one in rejected) > 4 * text_pair.target.vocab_size



class TestRefusals:
    def verifier(self, pair: Pair) -> SampledVerifier:
        verifier = SampledVerifier(pair.target, GenerationOptions(20, temperature=1.0), Recovery.ROW, 0)
        verifier.open(prompt_for(pair.target))
        return verifier

    def test_what_does_not_fit_is_a_protocol_error(self, text_pair: Pair) -> None:
        verifier = self.verifier(text_pair)
        for draft, q, fix in (
            (Draft(1, (1, 2)), torch.ones(3), None),
            (Draft(1, (1,)), torch.ones(1), 5),
            (Draft(5, (1,)), torch.ones(1), None),
            (Draft(1, (5000,)), torch.ones(1), None),
        ):
            with pytest.raises(ProtocolError):
                verifier.verify_sampled(draft, q, fix)
        with pytest.raises(ProtocolError, match="nothing was rejected"):
            verifier.more()

    def test_the_recovered_token_is_owed(self, text_pair: Pair) -> None:
        verifier = self.verifier(text_pair)
        unlikely = int(
            text_pair.target.new_session().prefill(text_pair.target.encode(Prompt((1, 2)))).argmin()
        )
        verdict = verifier.verify_sampled(Draft(1, (unlikely,)), torch.tensor([1.0]), None)
        assert verdict.token is None and verdict.row is not None
        with pytest.raises(ProtocolError, match="must be sent after a rejection"):
            verifier.verify_sampled(Draft(2, ()), torch.empty(0), None)
        with pytest.raises(ProtocolError, match="impossible id or position"):
            verifier.verify_sampled(Draft(3, ()), torch.empty(0), 7)
        assert verifier.verify_sampled(Draft(2, ()), torch.empty(0), 7).token is not None
        assert verifier.answer[1] == 7

    def test_q_of_any_length_is_a_tensor_of_its_shape(self) -> None:
        assert q_from_wire(floats_to_wire(torch.rand(2, 8)), 2, 8).shape == (2, 8)
        assert q_from_wire(floats_to_wire(torch.rand(2)), 2, 8).shape == (2,)
        assert q_from_wire(b"", 0, 8).shape == (0, 8)

    def test_trees_and_rejection_sampling_do_not_go_together(self) -> None:
        with pytest.raises(OptionsError, match="shared noise"):
            get_method("dssd+tree:8x2")
