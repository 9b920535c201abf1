"""Which engine is held to the contract: `pytest tests/engine_contract --engine vllm`; our own unless configured
otherwise.
"""

from collections.abc import Callable, Iterator
from importlib import import_module

import pytest

from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.interface import MakeEngine
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.work import Models
from specdec.models import LoadedModel, load_model
from tests.engine_contract.contract import Client
from tests.helpers.drafts import without_epsilon
from tests.helpers.servers import Pair
from tests.helpers.tiny_models import DRAFT_NOISE, build_llama, build_qwen2vl, built_pairs, noisy_copy

KV_BYTES = 1 << 26


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine",
        default="own",
        choices=("own", "vllm", "llamacpp"),
        help="the engine that is held to the contract",
    )


@pytest.fixture(scope="session")
def engine_name(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("--engine", default="own")


@pytest.fixture(scope="session")
def make_for(engine_name: str) -> Callable[[LoadedModel], MakeEngine]:
    """What makes engines for a target."""
    if engine_name == "own":
        return lambda model: own_engine(Policy(), Models(model), kv_bytes=KV_BYTES)
    made: Callable[[LoadedModel], MakeEngine] = import_module(
        f"tests.engine_contract.{engine_name}_engines"
    ).makers()
    return made


@pytest.fixture(scope="session")
def text_pair(tmp_path_factory: pytest.TempPathFactory, engine_name: str) -> Pair:
    """Llama target and draft: for another engine than ours, with heads as wide as every engine takes them."""
    if engine_name == "own":
        return Pair(*(load_model(built_pairs() / f"text-{kind}") for kind in ("target", "draft")))
    folder = tmp_path_factory.mktemp("pair")
    build_llama(folder / "text-target", hidden=128)
    noisy_copy(folder / "text-target", folder / "text-draft", DRAFT_NOISE)
    return Pair(load_model(folder / "text-target"), load_model(folder / "text-draft"))


@pytest.fixture(scope="session")
def seeing_target(tmp_path_factory: pytest.TempPathFactory, engine_name: str) -> LoadedModel:
    """A Qwen2-VL."""
    if engine_name == "own":
        return load_model(built_pairs() / "vision-target")
    folder = build_qwen2vl(tmp_path_factory.mktemp("seeing") / "target", hidden=128)
    # llama.cpp adds nothing in the norms of a Qwen2-VL: it does not read how much.
    return load_model(without_epsilon(folder) if engine_name == "llamacpp" else folder)


@pytest.fixture
def target(text_pair: Pair) -> LoadedModel:
    return text_pair.target


@pytest.fixture
def client(make_for: Callable[[LoadedModel], MakeEngine], target: LoadedModel) -> Iterator[Client]:
    one = Client(make_for(target))
    yield one
    one.engine.stop()
