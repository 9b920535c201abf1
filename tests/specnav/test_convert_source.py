"""The weights of a folder: a damaged file is named in one line, and faults of ours keep their own names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specnav.convert import source as module
from specnav.convert.source import Source
from specnav.errors import UsageError

FILE, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file({"model.norm.weight": torch.ones(4), "lm_head.weight": torch.zeros(2, 4)}, tmp_path / FILE)
    return tmp_path


def cut_off(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 8)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("damage", [cut_off, empty, a_folder])
def test_a_damaged_file_of_weights_is_named(folder: Path, damage: Callable[[Path], None]) -> None:
    damage(folder / FILE)
    with pytest.raises(UsageError, match=rf"{FILE} cannot be read \(.+\): copy the folder anew"):
        Source(folder)


def test_a_file_that_is_damaged_or_replaced_later_is_named(folder: Path) -> None:
    found = Source(folder)
    assert torch.equal(found.read("model.norm.weight"), torch.ones(4))
    save_file({"model.norm.weight": torch.ones(5), "lm_head.weight": torch.zeros(2, 4)}, folder / FILE)
    with pytest.raises(UsageError, match="has changed while it was read"):
        found.read("model.norm.weight")
    save_file({"lm_head.weight": torch.zeros(2, 4)}, folder / FILE)
    with pytest.raises(UsageError, match="copy the folder anew"):
        found.read("model.norm.weight")


@pytest.mark.parametrize(
    "index", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map": null}', "\xff"]
)
def test_a_damaged_index_is_named(folder: Path, index: str) -> None:
    (folder / INDEX).write_bytes(index.encode("latin-1"))
    with pytest.raises(UsageError, match=rf"{INDEX} cannot be read \(.+\): copy the folder anew"):
        Source(folder)


def test_an_index_names_the_files_and_one_that_is_missing_is_told(folder: Path) -> None:
    named = {"weight_map": {"model.norm.weight": FILE}, "metadata": {"total_size": 1}}
    (folder / INDEX).write_text(json.dumps(named))
    assert sorted(Source(folder)) == ["lm_head.weight", "model.norm.weight"]
    named["weight_map"]["x"] = "other.safetensors"
    (folder / INDEX).write_text(json.dumps(named))
    with pytest.raises(UsageError, match=r"lacks other\.safetensors, which its index names"):
        Source(folder)


@pytest.mark.parametrize("fault", [AttributeError, KeyError, TypeError, ValueError])
def test_a_fault_of_ours_is_not_called_a_damaged_file(
    folder: Path, fault: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(name: str) -> str:
        raise fault(name)

    monkeypatch.setattr(module, "name_today", faulty)
    with pytest.raises(fault):
        Source(folder)
