"""What only the engine on vLLM has: caches that vLLM takes from requests, and drafts that take several forwards."""

from __future__ import annotations

import pytest

from cloud_verifier.engine.interface import AnyEngine, EngineEnvironment
from specdec.link.wire import ErrorDown, Opened
from specdec.models import LoadedModel, Prompt
from specdec.options import GenerationOptions
from tests.engine_contract.contract import SETTINGS, Client, answer_of, check_answers_together, prompt_of


@pytest.fixture(autouse=True)
def only_on_vllm(engine_name: str) -> None:
    if engine_name != "vllm":
        pytest.skip("of the engine on vLLM: make test-vllm")


def small(model: LoadedModel, overcommit: float) -> Client:
    """A cache of few blocks, promised this many times."""
    from cloud_verifier.engine_vllm.core import CoreSettings, VllmCore
    from cloud_verifier.engine_vllm.engine import VllmEngine
    from cloud_verifier.engine_vllm.target import VllmTarget

    target = VllmTarget(model.path)
    core = VllmCore(target, CoreSettings(9 * 128 * 4 * 2 * 2 * 32 * 3, share=False))

    def make(environment: EngineEnvironment) -> AnyEngine:
        return VllmEngine(core, target, environment, overcommit=overcommit, name="small.")

    return Client(make)


def test_who_loses_a_cache_to_others_goes_on_as_if_nothing_had_happened(target: LoadedModel) -> None:
    """vLLM takes caches from those that run, the engine from those that rest; no answer changes."""
    client = small(target, overcommit=8.0)
    engine = client.engine
    for settings in (list(SETTINGS.values()), list(SETTINGS.values())[::-1]):
        kinds = {}
        for number in range(6):
            options = settings[number % len(settings)]
            prompt = Prompt(tuple(30 + (number * 3 + place * place) % 60 for place in range(120)))
            kinds[number + 1] = (prompt, options)
        check_answers_together(client, target, kinds)
        taken = engine._core.preempted  # type: ignore[attr-defined]
        assert 0 < taken < engine.counters()["kv_evictions"], "of both kinds"
        for one in kinds:
            client.close(one)
        client.work()
        assert not engine.kv_admitted()


def test_a_draft_longer_than_a_forward_takes_is_judged_whole(client: Client, target: LoadedModel) -> None:
    options = GenerationOptions(60)
    right = answer_of(target, prompt_of(8), options)
    assert isinstance(client.opened(8, prompt_of(8), options), Opened)
    verdict = client.verdict(8, 1, right[1:51])
    assert (verdict.last, verdict.token) == (50, right[51])


def test_more_than_there_ever_is_of_cache_is_refused_at_once(client: Client, target: LoadedModel) -> None:
    client.engine.budget.total = 1 << 10
    client.open(1, prompt_of(1))
    client.work()
    found = client.refused(1)
    assert isinstance(found, ErrorDown) and found.code == "too_large" and "--kv-gb" in found.message
