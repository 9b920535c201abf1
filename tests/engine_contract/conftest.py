"""Which engine is held to the contract: `pytest tests/engine_contract --engine vllm`; our own unless told otherwise."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.interface import MakeEngine
from cloud_verifier.engine.policy import Policy
from specdec.models import LoadedModel

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from conftest_servers import (  # noqa: E402, F401
    Pair,
    model_root,
    text_pair,
    vision_pair,
)
from contract import Client  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine", default="own", choices=("own",), help="the engine that is held to the contract"
    )


@pytest.fixture(scope="session")
def engine_name(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("--engine", default="own")


@pytest.fixture(scope="session")
def make_for(engine_name: str) -> Callable[[LoadedModel], MakeEngine]:
    """What makes engines for a target."""
    return lambda model: own_engine(Policy(), model, kv_bytes=1 << 26)


@pytest.fixture
def target(text_pair: Pair) -> LoadedModel:  # noqa: F811
    return text_pair.target


@pytest.fixture
def client(make_for: Callable[[LoadedModel], MakeEngine], target: LoadedModel) -> Iterator[Client]:
    one = Client(make_for(target))
    yield one
    one.engine.stop()
