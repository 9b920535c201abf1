"""What an acceptance means, how it is asked for, and that it is reached."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specdec.models import load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.row_ms import read_ms
from specdec.sampling.disturbed import Disturbance
from specnav.bench.data.acceptance import WantedAcceptance, read_acceptance
from specnav.bench.data.questions import Question
from specnav.bench.runner.acceptance import answer_with_logits, bisect, calibrate, matches, rounds_of
from specnav.bench.runner.edge import draft_pace, verify_pace
from specnav.paths import DEFAULT_TEXT_TARGET
from specnav.results.errors import EvaluationError
from tests.bench.made_up import VERIFY_MS, ar_answer, sd_answer

QUESTIONS = [Question("short", str(n), (text,)) for n, text in enumerate(("How do I read a file?", "def add(a, b):"))]
GREEDY = GenerationOptions(max_new_tokens=40)


@pytest.fixture(scope="module")
def target():
    """The shipped text target: its entropy varies as that of a language model does."""
    torch.set_num_threads(1)
    return load_model(str(DEFAULT_TEXT_TARGET), device="cpu")


def calibrated(target, text, options=GREEDY, seed=0):
    return calibrate(target, QUESTIONS, options, read_acceptance(text, 4), seed, lambda words: None)


class TestAsked:
    @pytest.mark.parametrize(
        ("text", "gamma", "wanted"),
        [
            ("tau:2.92@5", 4, WantedAcceptance("tau", 2.92, 4)),  # as the papers print it: of at most five
            ("tau:2.92@4+1", 4, WantedAcceptance("tau", 2.92, 4)),
            ("tau:2.92@5+1", 5, WantedAcceptance("tau", 2.92, 5)),
            ("tau:2.92@5", 7, WantedAcceptance("tau", 2.92, 4)),
            ("tau:3", 6, WantedAcceptance("tau", 3.0, 6)),
            ("alpha:0.8", 4, WantedAcceptance("alpha", 0.8)),
            (" alpha:1 ", 4, WantedAcceptance("alpha", 1.0)),
        ],
    )
    def test_means_one_thing(self, text, gamma, wanted):
        assert read_acceptance(text, gamma) == wanted
        for other in (1, 4, 5, 32):  # what str() says needs no run to be understood
            assert read_acceptance(str(wanted), other) == wanted

    @pytest.mark.parametrize(
        ("text", "gamma", "words"),
        [
            ("tau:2.92@5", 5, r"ambiguous with --gamma 5: write tau:2.92@5\+1 .* or tau:2.92@4\+1"),
            ("tau:5.2@5", 4, "1 to 5 tokens, so tau cannot be 5.2"),
            ("tau:0.9@5", 4, "1 to 5 tokens"),
            ("tau:2@1", 4, "1 to 32 tokens"),
            ("tau:2@50", 4, "1 to 32 tokens"),
            ("tau:nan@5", 4, "is not understood; give tau:T@N"),
            ("tau:-1@5", 4, "is not understood; give tau:T@N"),
            ("tau:2.9@5@6", 4, "is not understood; give tau:T@N"),
            ("tau", 4, "is not understood; give tau:T@N"),
            ("0.8", 4, "is not understood; give tau:T@N"),
            ("alpha:1.01", 4, "probability"),
            ("alpha:0.8@5", 4, "is not understood; give tau:T@N"),
            ("", 4, "is not understood"),
        ],
    )
    def test_that_cannot_be_is_one_line(self, text, gamma, words):
        with pytest.raises(EvaluationError, match=words) as error:
            read_acceptance(text, gamma)
        assert "\n" not in str(error.value)


class TestRounds:
    def test_gain_what_is_right_before_the_first_wrong_and_one_more(self):
        right = [True, True, False, True, True, True, True, False, True, True]
        # 0 1 | 2 is the verdict's; 3 4 5 6 | 7; 8 | 9: of a first round the prompt's token is not counted
        assert rounds_of(right, False, 4, 10) == [2, 5, 2]

    def test_leave_room_for_the_verdicts_token_and_end_with_an_eos(self):
        assert rounds_of([True] * 6, False, 4, 6) == [4, 1]
        assert rounds_of([True] * 6, True, 8, 40) == [5]  # an EOS is never accepted, it is the verdict's
        assert rounds_of([True], False, 4, 1) == []
        assert rounds_of([False] * 4, False, 2, 4) == [0, 1, 1, 1]


def test_bisecting_finds_the_nearest_step():
    assert bisect(lambda strength: 1.0 + 4.0 / (1 + strength), 3.0)[0] == pytest.approx(1.0, rel=1e-4)
    strength, found = bisect(lambda strength: 5.0 if strength < 0.3 else 2.0, 3.0)
    assert found == 2.0 and strength >= 0.3
    assert bisect(lambda strength: 2.0, 3.0) == (0.0, 2.0)


class TestCalibrated:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("text", "options"),
        [
            ("tau:2.5@5", GREEDY),
            ("tau:1.94@5", GREEDY),
            ("tau:2.2@5", replace(GREEDY, temperature=0.8, seed=3)),
            ("alpha:0.8", GREEDY),
            ("alpha:0.7", replace(GREEDY, temperature=1.0, top_k=10)),
            ("tau:2.2@5", replace(GREEDY, repetition_penalty=1.3)),
        ],
    )
    def test_acceptance_is_reached(self, target, text, options):
        found = calibrated(target, text, options)
        wanted = read_acceptance(text, 4)
        assert abs(found.achieved - wanted.value) <= max(wanted.tolerance, 0.08)  # few rounds: coarse steps
        assert found.ceiling > found.achieved and found.questions == 2 and found.positions > 60
        assert "acceptance emulated" in found.line and f"{found.achieved:.3f} reached" in found.line

    @pytest.mark.slow
    def test_the_same_seed_finds_the_same_and_another_another(self, target):
        one, again, other = (calibrated(target, "tau:2.5@5", seed=seed) for seed in (1, 1, 2))
        assert one == again and one.strength != other.strength

    @pytest.mark.slow
    def test_the_draft_is_wrong_where_the_target_is_unsure(self, target):
        """No coin flip: entropy is what acceptance goes with."""
        told = answer_with_logits(target, chat(target, QUESTIONS[0]), GREEDY)
        right = torch.tensor(matches(target, told, Disturbance(1.2)), dtype=torch.float)
        entropy = torch.distributions.Categorical(logits=told.rows).entropy()
        assert float(torch.corrcoef(torch.stack([right, entropy]))[0, 1]) < -0.25
        found = calibrated(target, "alpha:0.7")
        assert found.entropy_wrong > 1.3 * found.entropy_right

    @pytest.mark.slow
    def test_what_is_told_is_what_the_target_says(self, target):
        prompt = chat(target, QUESTIONS[1])
        for options in (GREEDY, replace(GREEDY, temperature=0.9, seed=5)):
            told = answer_with_logits(target, prompt, options)
            ids = [token for token in told.picks if token not in target.eos_token_ids]
            assert ids == generate_local(target, prompt, options)
            assert all(matches(target, told, Disturbance(0.0)))

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("tau:5@5", r"tau:5@4\+1 cannot be reached: the target drafting for itself reaches 4\.\d+ on these"),
            ("alpha:0", "drafts of pure noise reach"),
        ],
    )
    def test_what_cannot_be_reached_is_one_line(self, target, text, words, monkeypatch):
        if text == "alpha:0":  # of 3,072 tokens noise is hardly ever right: as if it were
            monkeypatch.setattr("specnav.bench.runner.acceptance.matches", lambda *args: [True])
        with pytest.raises(EvaluationError, match=words) as error:
            calibrated(target, text)
        assert "\n" not in str(error.value)


def chat(target, question):
    from specnav.bench.runner.loop import prompt_of

    return prompt_of(target.tokenizer, question, [])


class TestPace:
    def test_forwards_that_are_late_are_told(self):
        assert "kept their paced times (99 %" in draft_pace(200, 2, 1.001, 1.4)
        assert "did NOT keep their paced times: of 200 80 % within" in draft_pace(200, 40, 1.01, 2.5)
        assert "did NOT keep" in draft_pace(200, 2, 1.2, 60.0)  # few, but how

    def test_the_clouds_forwards_are_those_of_methods_whose_rows_are_known(self):
        answers = [ar_answer("1"), sd_answer("1")]
        assert "kept their paced times" in verify_pace(answers, VERIFY_MS)
        assert "did NOT keep" in verify_pace(answers, VERIFY_MS / 2)
        assert "did NOT keep" in verify_pace(answers, read_ms(f"{VERIFY_MS / 3}:1,{VERIFY_MS}:5"))
        assert verify_pace([sd_answer("1", method="fsd")], VERIFY_MS) == ""
