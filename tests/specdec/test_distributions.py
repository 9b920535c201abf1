"""What every method samples is what the target alone would sample: chi-square at a false-alarm rate of 1e-6.

The negative controls show that the tests see what is wrong, at the same number of samples.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec.edge.decoder import EdgeDecoder
from specdec.models import chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.helpers.servers import Pair, patiently_connected
from tests.helpers.table_models import PROMPT, answer_chances
from tests.specdec.checks import (
    EARLY,
    FALSE_ALARM,
    NOISE,
    PARTS_OF_ROWS,
    REJECTION,
    SAMPLED,
    SAMPLES,
    SAMPLES_OF_PARTS,
    UNLIKE,
    check_distribution,
    check_seed_decides,
    sampled_pvalue,
)
from tests.specdec.wired import WiredLink

pytestmark = pytest.mark.slow

CUT_SUPPORT = replace(SAMPLED, temperature=2.0, top_k=3, top_p=0.9)


def test_the_reference_is_a_distribution_and_its_answers_are_many() -> None:
    chances = answer_chances(UNLIKE.target, PROMPT, SAMPLED, 3)
    assert sum(chances.values()) == pytest.approx(1.0, abs=1e-12)
    assert len(chances) > 60 and max(chances.values()) < 0.3


@pytest.mark.parametrize(
    ("method", "samples"),
    [
        *((name, SAMPLES) for name in ("sd", *REJECTION)),
        *((name, SAMPLES_OF_PARTS) for name in PARTS_OF_ROWS),
    ],
)
def test_a_method_samples_as_the_target_alone(method: str, samples: int) -> None:
    """Of the methods with shared noise one speaks for all: each gives, token for token, what `ar` gives for a seed."""
    check_distribution(method, samples=samples)


@pytest.mark.parametrize("method", ["ar", "dssd", "picospec+resample:sparse:1"])
def test_it_does_where_the_support_is_cut(method: str) -> None:
    """q as it was sampled from, after every processor, and p alike."""
    check_distribution(method, CUT_SUPPORT)


def test_it_does_after_an_outage() -> None:
    check_distribution("picospec+resample:sparse:1", cuts=(2, 4))


@pytest.mark.parametrize("method", ["dssd-thin+resample:samples:1", "picospec+resample:sparse:1"])
def test_a_rejection_seen_in_part_is_the_same_after_an_outage(method: str) -> None:
    """A draw afresh would favour what needs no more of the row."""
    lost = 0
    for seed in range(60):
        options = replace(SAMPLED, seed=seed, max_new_tokens=6)
        answers = []
        for lose_more in (False, True):
            link = WiredLink(UNLIKE.target, seed=seed, lose_more=lose_more)
            decoder = EdgeDecoder(link, UNLIKE.draft, method, gamma=3, resume_timeout_s=9)  # type: ignore[arg-type]
            answers.append([token for chunk in decoder.generate(PROMPT, options) for token in chunk])
            lost += decoder.stats.resumes
        assert answers[0] == answers[1], seed
    assert lost > 0


@pytest.mark.parametrize("method", NOISE)
def test_with_shared_noise_the_seed_decides_every_token(method: str) -> None:
    """With two outages and without, on a cut support and on a whole one, in turn from method to method."""
    turn = NOISE.index(method) % 2
    assert check_seed_decides(method, (SAMPLED, CUT_SUPPORT)[turn], seeds=8) == 0
    assert check_seed_decides(method, (CUT_SUPPORT, SAMPLED)[turn], cuts=(1, 3), seeds=8) > 8


@pytest.mark.parametrize("layers", ["", "+layers:2"])
def test_with_split_layers_the_seed_decides_every_token(
    text_pair: Pair, servers: dict[str, str], layers: str
) -> None:
    prompt = chat_prompt(text_pair.target, "split")
    with patiently_connected(servers[text_pair.target.path]) as link:
        for seed in range(4):
            options = GenerationOptions(20, temperature=1.0, seed=seed, top_p=0.95)
            decoder = EdgeDecoder(
                link, method=f"split{layers}", front_model=text_pair.target, resume_timeout_s=10.0
            )
            got: list[int] = []
            for chunk in decoder.generate(prompt, options):
                got += chunk
                if seed % 2 and len(got) == 6:
                    link.reset()
            assert got == generate_local(text_pair.target, prompt, options)
            assert decoder.stats.resumes == seed % 2


class TestNegativeControls:
    """What is known to be wrong is seen to be wrong."""

    def test_the_papers_truncated_row_is_caught(self) -> None:
        """With full support it is not exact, as a dropped tail would not be; the exact rule passes above."""
        method = "picospec-lossy+resample:truncated:2"
        assert sampled_pvalue(method, samples=SAMPLES_OF_PARTS, looks=EARLY) < FALSE_ALARM

    def test_a_wrong_rule_is_caught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Accepting half of what should be rejected."""
        from specdec.sampling import rejection

        right = rejection.accepts
        monkeypatch.setattr(rejection, "accepts", lambda p, q: 0.5 + 0.5 * right(p, q))
        for method in ("dsd", "picospec"):
            assert sampled_pvalue(method, looks=EARLY) < FALSE_ALARM

    def test_a_seed_that_is_not_shared_is_caught(self) -> None:
        with pytest.raises(AssertionError):
            check_seed_decides("dssd", seeds=5)
