"""What the engine on vLLM does where several processes share its target: `--tensor-parallel 2`, here on the CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from cloud_verifier.engine.interface import AnyEngine, EngineEnvironment
from cloud_verifier.errors import VerifierError
from specdec.link.wire import LACKS_GRAMMARS
from specdec.models import LoadedModel
from specdec.options import GenerationOptions
from tests.engine_contract.contract import (
    ACTIONS,
    GREEDY,
    SETTINGS,
    Client,
    answer_of,
    check_answers_together,
    prompt_of,
)

WORKERS = 2
NOTICED_S = 30.0
"""vLLM ends the other workers first, which may take 9 s, before it says that one has died."""
KINDS = (
    GREEDY,
    GenerationOptions(24, temperature=0.8, seed=5, top_k=40, repetition_penalty=1.2),
    SETTINGS["all"],
    SETTINGS["penalty"],
)


@pytest.fixture(scope="module", autouse=True)
def only_on_vllm(engine_name: str) -> None:
    if engine_name != "vllm":
        pytest.skip("of the engine on vLLM: make test-vllm")


@pytest.fixture
def failures() -> list[str]:
    """Why the engine could not go on."""
    return []


@pytest.fixture
def shared(seeing_target: LoadedModel, failures: list[str]) -> Iterator[Client]:
    """Of an engine whose target, one that sees, is shared."""
    from cloud_verifier.engine_vllm.core import CoreSettings, VllmCore
    from cloud_verifier.engine_vllm.engine import VllmEngine
    from cloud_verifier.engine_vllm.target import VllmTarget

    target = VllmTarget(seeing_target.path)
    core = VllmCore(target, CoreSettings(1 << 26, workers=WORKERS))

    def make(environment: EngineEnvironment) -> AnyEngine:
        return VllmEngine(core, target, replace(environment, fail=failures.append), name="shared.")

    client = Client(make)
    yield client
    client.engine.stop()
    core._core.shutdown()


def test_processes_that_share_a_target_say_what_it_says_and_none_goes_unnoticed(
    shared: Client, seeing_target: LoadedModel, failures: list[str]
) -> None:
    workers = [one for one in psutil.Process().children() if "Worker_TP" in one.name()]
    assert len(workers) == WORKERS
    # Two of the four see a picture.
    kinds = {n: (prompt_of(n, n % 2, seeing_target), options) for n, options in enumerate(KINDS, 1)}
    assert check_answers_together(shared, seeing_target, kinds) == len(kinds)
    for session, options in enumerate(KINDS[:2], 20):
        shared.open(session, prompt_of(9), options, stream=True)
        shared.work()
        assert shared.streamed(session) == answer_of(seeing_target, prompt_of(9), options)
    # A grammar that cannot be followed would be told to the workers alone.
    assert LACKS_GRAMMARS in shared.engine.can.lacks
    shared.open(30, prompt_of(3), GenerationOptions(24, grammar=ACTIONS))
    shared.work()
    refused = shared.refused(30)
    assert refused.code == "refused" and "grammars" in refused.message and "\n" not in refused.message
    shared.opened(31, prompt_of(4))
    assert not failures
    began = time.monotonic()
    workers[-1].kill()
    shared.draft(31, 1, [40])
    shared.engine.work_off()
    assert shared.last(31).token is not None, "edges go on elsewhere"  # type: ignore[union-attr]
    while not failures and time.monotonic() < began + NOTICED_S:
        time.sleep(0.05)
    assert len(failures) == 1 and "has died" in failures[0] and "\n" not in failures[0]


def test_a_number_that_does_not_divide_the_heads_is_refused_in_vllms_words(target: LoadedModel) -> None:
    from cloud_verifier.engine_vllm.core import CoreSettings, VllmCore
    from cloud_verifier.engine_vllm.target import VllmTarget

    with pytest.raises(VerifierError, match=r"attention heads .* divisible") as told:
        VllmCore(VllmTarget(target.path), CoreSettings(1 << 26, workers=3))
    assert "\n" not in str(told.value)
