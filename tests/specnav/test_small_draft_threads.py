"""A small draft gets one of torch's threads from the code that loads it at an edge: with more, each operation waits
for threads that other work on the machine keeps from running, and an answer of 0.2 s took seconds.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from cloud_verifier.config import ServerConfig
from cloud_verifier.serving import serve
from specdec.errors import OptionsError
from specdec.models.gguf.model import load_gguf
from specdec.models.gguf.options import GgufOptions
from specdec.models.threads import check_threads, is_small, set_threads
from specnav.generate import GenerateConfig, run_generate
from specnav.paths import DEFAULT_TEXT_DRAFT

MANY = 3


class Reached(Exception):
    """Raised in place of the answer."""


@dataclass(frozen=True)
class Sized:
    """What is asked of a model here."""

    parameter_count: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


@pytest.fixture(autouse=True)
def many_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(MANY)
    yield
    torch.set_num_threads(before)


def test_generate_drafts_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoder(*_: Any, **__: Any) -> None:
        raise Reached

    monkeypatch.setattr("specdec.edge.decoder.EdgeDecoder", decoder)
    with pytest.raises(Reached):
        run_generate(GenerateConfig("hello", connect="tcp://127.0.0.1:1", draft_model=str(DEFAULT_TEXT_DRAFT)))
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("method", ["ar", "cloud-sd", "ngram"])
def test_generate_loads_no_draft_model_where_it_drafts_with_none(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def decoder(_: Any, draft: Any, **__: Any) -> None:
        assert draft is None
        raise Reached

    monkeypatch.setattr("specdec.edge.decoder.EdgeDecoder", decoder)
    with pytest.raises(Reached):
        run_generate(
            GenerateConfig(
                "hello", connect="tcp://127.0.0.1:1", draft_model=str(DEFAULT_TEXT_DRAFT), method=method
            )
        )


def test_the_robot_drafts_in_one_thread() -> None:
    speculative = pytest.importorskip("spec_vlm_nav.model.speculative")
    settings = speculative.DecoderSettings(draft_model=str(DEFAULT_TEXT_DRAFT))
    assert is_small(speculative._load(settings, settings.draft_model))
    assert torch.get_num_threads() == 1


def test_a_large_model_keeps_its_threads_and_a_number_that_was_asked_for_counts() -> None:
    set_threads(0, Sized(2_000_000_000))  # type: ignore[arg-type]
    assert torch.get_num_threads() == MANY
    set_threads(2, Sized(1_000_000))  # type: ignore[arg-type]
    assert torch.get_num_threads() == 2
    set_threads(0, Sized(1_000_000))  # type: ignore[arg-type]
    assert torch.get_num_threads() == 1


def test_no_more_threads_than_the_machine_has_cores_are_taken() -> None:
    cores = os.cpu_count() or 1
    for count in (0, 1, cores):
        check_threads(count)
    with pytest.raises(OptionsError, match=rf"threads = {cores + 1} is more than this machine's {cores} CPU cores"):
        check_threads(cores + 1)


def test_verifier_and_gguf_model_refuse_such_threads_before_anything_is_loaded() -> None:
    many = (os.cpu_count() or 1) + 1
    with pytest.raises(OptionsError, match="threads"):
        serve(ServerConfig(model="no/such-model", threads=many), io.StringIO())
    with pytest.raises(OptionsError, match="threads"):
        load_gguf(Path("no-such.gguf"), GgufOptions(threads=many))
