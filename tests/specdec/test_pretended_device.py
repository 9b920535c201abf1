"""Every method with both models on a device that is not the CPU: nothing mixes, and the program waits seldom.

The device is pretended: a real GPU was not there when this was written (see `pretended_device`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from specdec.drafting import ChainDrafter, Draft, DraftModel
from specdec.edge.decoder import EdgeDecoder
from specdec.methods import METHODS
from specdec.models import LoadedModel, Prompt, load_model
from specdec.models.local import generate_local
from specdec.models.plans import extend_many
from specdec.options import GenerationOptions
from specdec.sampling.recoveries import Recovery
from specdec.verifying import SampledVerifier
from specdec.verifying.verifier import Verifier
from tests.helpers import tiny_models as tiny
from tests.specdec.checks import REJECTION
from tests.specdec.pretended_device import OnDevice, PretendedDevice, names, on_device, waits
from tests.specdec.wired import WiredLink

pytestmark = pytest.mark.slow

PROMPT = Prompt((40, 50, 60, 70))
TOKENS = 12
GAMMA = 4
ON_DEVICE = [
    *METHODS,
    "sd+overlap:stream",
    "fsd+tree:12x4+rows:3",
    "sd+drafter:both+length:worth",
    "dssd+length:dual:learned",
]
"""Combinations differ from these in when messages leave, which no tensor knows of."""
Models = tuple[LoadedModel, LoadedModel]


@pytest.fixture(scope="module")
def here() -> Iterator[Models]:
    """Target and draft, as the library loads them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specdec.models.loading.read_model", lambda path: None)
        folders = [tiny.built_pairs() / name for name in ("text-target", "text-draft")]
        target, draft = (load_model(folder, dtype="float32") for folder in folders)
        yield target, draft


@pytest.fixture
def there(here: Models) -> Iterator[Models]:
    with PretendedDevice(), torch.inference_mode():
        target, draft = map(on_device, here)
        yield target, draft


def answer(method: str, models: Models, options: GenerationOptions) -> list[int]:
    target, draft = models
    link = WiredLink(target, draft, slowness=0.3, seed=1)
    decoder = EdgeDecoder(link, draft, method, gamma=GAMMA, front_model=target)
    return [token for chunk in decoder.generate(PROMPT, options) for token in chunk]


def test_a_tensor_of_the_cpu_does_not_mix_with_one_of_the_device() -> None:
    with PretendedDevice():
        numbers = torch.ones(3, device="meta")
        assert isinstance(numbers, OnDevice) and (numbers * 2).tolist() == [2.0, 2.0, 2.0]
        for wrong in (lambda: numbers + torch.ones(3), lambda: torch.cat([numbers, torch.ones(1)])):
            with pytest.raises(RuntimeError, match="on the device and on the CPU"):
                wrong()


def temperature_of(place: int, method: str) -> float:
    """Greedy and sampled in turn; rejection sampling needs a temperature, and one method has none."""
    if method in REJECTION:
        return 0.9
    return 0.0 if place % 2 or method == "picospec-lossy" else 0.9


@pytest.mark.parametrize(
    ("method", "temperature"),
    [
        *((method, temperature_of(place, method)) for place, method in enumerate(ON_DEVICE)),
        *(
            (method, 0.9 - temperature_of(ON_DEVICE.index(method), method))
            for method in ("ar", "sd", "fsd", "dsd")
        ),
    ],
)
def test_answers_are_those_of_the_cpu(here: Models, method: str, temperature: float) -> None:
    options = GenerationOptions(TOKENS, temperature=temperature, seed=3)
    expected = answer(method, here, options)
    if method not in REJECTION or not temperature:
        assert expected == generate_local(here[0], PROMPT, options)
    with PretendedDevice(), torch.inference_mode():
        target, draft = map(on_device, here)
        assert answer(method, (target, draft), options) == expected


class TestBudgets:
    """How often the program waits for the device."""

    @pytest.mark.parametrize("sampled", [False, True], ids=["picked", "sampled"])
    @pytest.mark.parametrize("temperature", [0.0, 0.9])
    def test_a_draft_is_read_once(self, there: Models, temperature: float, sampled: bool) -> None:
        if sampled and not temperature:
            pytest.skip("nothing is sampled at temperature 0")
        options = GenerationOptions(40, temperature=temperature, top_k=5 if temperature else 0)
        drafter, one_by_one = (ChainDrafter(DraftModel(there[1], options), sampled) for _ in range(2))
        drafter.at_once = True
        drafter.prefill(PROMPT)
        one_by_one.prefill(PROMPT)
        for said in ([7], [7, 9, 11], [7, 9, 11, 40]):
            with waits() as found:
                proposal = drafter.chain(said, GAMMA)
            assert found.total() == 1, names(found)
            other = one_by_one.chain(said, GAMMA)
            assert proposal.guess == other.guess and drafter.forwards == GAMMA and one_by_one.forwards == 1
            assert len(proposal.guess) == GAMMA or proposal.guess[-1] in there[1].eos_token_ids
            if sampled:
                assert proposal.q is not None and other.q is not None
                assert torch.equal(proposal.q, other.q)

    def test_a_draft_that_is_broken_off_leaves_no_trace(self, there: Models) -> None:
        drafter, whole = (ChainDrafter(DraftModel(there[1], GenerationOptions(40))) for _ in range(2))
        for one in (drafter, whole):
            one.at_once = True
            one.prefill(PROMPT)
        plan = drafter.chain.plan([7], GAMMA)
        plan.send(extend_many([next(plan)])[0])
        plan.close()
        assert drafter.chain([7, 9], GAMMA) == whole.chain([7, 9], GAMMA)

    @pytest.mark.parametrize("temperature", [0.0, 0.9])
    @pytest.mark.parametrize("parents", [None, (-1, -1, 0, 0, 2)], ids=["chain", "tree"])
    def test_a_verdict_is_read_once(
        self, there: Models, parents: tuple[int, ...] | None, temperature: float
    ) -> None:
        verifier = Verifier(
            there[0], GenerationOptions(40, temperature=temperature, top_k=5 if temperature else 0)
        )
        verifier.open(PROMPT)
        for _ in range(3):
            draft = Draft(len(verifier.answer), (7, 9, 11, 13, 15), parents)
            with waits() as found:
                verifier.verify(draft)
            assert found.total() == 1, names(found)

    @pytest.mark.parametrize("recovery", [one for one in Recovery if one is not Recovery.NOISE])
    def test_a_verdict_on_a_sampled_draft_is_read_once(
        self, here: Models, there: Models, recovery: Recovery
    ) -> None:
        """However it ends, and it ends as on a CPU."""
        options = GenerationOptions(60, temperature=0.9, seed=5)
        twins = [SampledVerifier(models[0], options, recovery, 3) for models in (here, there)]
        for verifier in twins:
            verifier.open(PROMPT)
        made = torch.Generator().manual_seed(1)
        fix: int | None = None
        ends = set()
        for number in range(8):
            base = len(twins[0].answer) + (fix is not None)
            q = torch.rand(3, here[0].vocab_size, generator=made).softmax(-1)
            ids = tuple(torch.multinomial(q, 1, generator=made)[:, 0].tolist())
            if number % 2:  # tokens that the target likes: some stay
                q = q * 1e-6
            given = (
                q
                if recovery in (Recovery.CLOUD, Recovery.ROW)
                else q.gather(1, torch.tensor(ids)[:, None])[:, 0]
            )
            expected = twins[0].verify_sampled(Draft(base, ids), given, fix)
            with waits() as found:
                verdict = twins[1].verify_sampled(Draft(base, ids), given, fix)
            assert found.total() == 1, names(found)
            assert (verdict.accepted, verdict.token) == (expected.accepted, expected.token)
            assert twins[0].answer == twins[1].answer
            fix = None
            if expected.row is not None:
                assert verdict.row is not None and verdict.row.tokens == expected.row.tokens
                torch.testing.assert_close(verdict.row.p, expected.row.p, rtol=0.0, atol=1e-6)
                fix = 7
            ends.add((verdict.accepted == 3, verdict.token is None))
        assert len(ends) > 1

    @pytest.mark.parametrize(
        ("method", "temperature", "most"),
        [  # a draft, a verdict, and whether its logits are numbers; then levels of trees, probabilities on the wire
            ("ar", 0.0, 2.0),
            ("sd", 0.0, 3.0),
            ("sd", 0.9, 3.0),
            ("dsd", 0.9, 4.0),
            ("fsd", 0.0, 2.0 + GAMMA),
            ("sd+tree:12x4", 0.0, 2.0 + 4),
        ],
    )
    def test_a_round_waits_seldom(self, there: Models, method: str, temperature: float, most: float) -> None:
        link = WiredLink(*there, seed=1)
        decoder = EdgeDecoder(link, there[1], method, gamma=GAMMA)
        with waits() as found:
            for _ in decoder.generate(PROMPT, GenerationOptions(20, temperature=temperature, seed=3)):
                pass
        rounds = max(len(decoder.stats.rounds), 1)
        assert found.total() <= most * rounds + 4, (found.total() / rounds, names(found))  # and the opening
