"""Files that people write: what is read of them, and that no file holds up or fills up who reads it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml

from specdec.errors import ModelError, OptionsError
from specdec.models import load_draft, load_draft_tokenizer, load_model, load_tokenizer
from specdec.models.direct import read_shape
from specdec.models.gguf.files import check_file
from specdec.models.gguf_header import read_header
from specdec.settings_files import (
    DEEPEST_YAML,
    FileRefused,
    check_regular,
    check_yaml,
    load_yaml,
    read_file,
    read_text,
)
from specdec.text.grammars import read_grammar
from specdec.verdict_log import VerdictLogError, read_verdicts
from specdec.verifying.exits import load_exits


def write(path: Path, data: bytes = b"{}", mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def fifo(path: Path) -> Path:
    os.mkfifo(path, 0o600)
    return path


def link(path: Path) -> Path:
    write(path.with_name("there"))
    path.symlink_to(path.with_name("there"))
    return path


def unix_socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    return path


def sparse(path: Path) -> Path:
    with write(path).open("wb") as file:
        file.truncate(1_500_000_000)
    return path


UNUSABLE = {
    "fifo": (fifo, "not a regular file"),
    "folder": (lambda path: path.mkdir() or path, "not a regular file"),
    "socket": (unix_socket, "not a regular file"),
    "device": (lambda path: Path("/dev/zero"), "not a regular file"),
    "link": (link, "symbolic link"),
    "large": (sparse, "1500000000 bytes, at most 100"),
    "open to others": (lambda path: write(path, mode=0o640), "others may read"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
@pytest.mark.realtime
def test_what_is_no_private_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    make, said = UNUSABLE[kind]
    began = time.monotonic()
    with pytest.raises(FileRefused, match=said):
        read_file(make(tmp_path / "file"), 100, private=True)
    assert time.monotonic() - began < 1.0


def test_a_file_is_read_up_to_its_bound_and_through_links_where_they_may_be(tmp_path: Path) -> None:
    assert read_file(write(tmp_path / "file", b"x" * 100), 100, private=True) == b"x" * 100
    with pytest.raises(FileRefused, match="101 bytes"):
        read_file(write(tmp_path / "longer", b"x" * 101), 100)
    assert read_file(link(tmp_path / "link"), 100, links=True) == b"{}"
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none", 100)


def test_a_file_without_a_size_is_read_no_further_than_its_bound() -> None:
    with pytest.raises(FileRefused, match="more than 10 bytes"):
        read_file("/proc/self/status", 10)


def test_a_pipe_that_somebody_writes_to_is_refused_as_well(tmp_path: Path) -> None:
    path = fifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK)))
    writer.start()
    with pytest.raises(FileRefused):
        read_file(path, 100)
    writer.join()


# -- folders that libraries read


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [fifo, unix_socket])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "generation_config.json"])
def test_a_pipe_in_a_model_folder_holds_up_no_reader(
    make: Callable[[Path], Path], name: str, tmp_path: Path
) -> None:
    write(tmp_path / "config.json", b'{"model_type": "llama"}')
    (tmp_path / name).unlink(missing_ok=True)
    make(tmp_path / name)
    for load in (load_model, load_tokenizer, load_draft, load_draft_tokenizer):
        with pytest.raises(ModelError, match=rf"{name} is not a regular file"):
            load(tmp_path)


@pytest.mark.timeout(20)
def test_a_pipe_in_place_of_one_file_of_a_model_holds_up_no_reader(tmp_path: Path) -> None:
    config, gguf = fifo(tmp_path / "config.json"), fifo(tmp_path / "model.gguf")
    assert read_shape(tmp_path) is None and config.is_fifo()
    for read in (check_file, read_header):
        with pytest.raises(ModelError, match="not a regular file"):
            read(gguf)
    with pytest.raises(ModelError, match="holds no early exits"):
        load_exits(tmp_path, Mock())
    fifo(tmp_path / "verdicts-000001.msgpack")
    with pytest.raises(VerdictLogError, match="not a regular file"):
        next(read_verdicts(tmp_path))


def test_links_of_a_cached_model_and_dead_ones_are_no_pipes(tmp_path: Path) -> None:
    link(tmp_path / "config.json")
    (tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    check_regular(tmp_path, tmp_path / "missing")


# -- YAML

HANGING = {
    "merge keys": "a: &a {x: 1}\nb: &b {<<: [*a, *a, *a, *a, *a, *a, *a, *a, *a]}\nc: {<<: [*b, *b]}",
    "merge key without an alias": "a: {<<: {x: 1}, y: 2}",
    "merge by its tag": "a: {!!merge x: {y: 1}}",
    "billion laughs": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
    "an anchor that no caller uses": "a: &a 1",
    "itself": "&a [*a]",
    "brackets": "[" * 100_000,
    "braces": "{a: " * 50_000,
    "indentation": "\n".join(" " * depth + "a:" for depth in range(600)),
    "dashes": "- " * 50_000 + "x",
    "question marks": "? " * 30_000 + "x",
    "many": "[" + "1," * 150_000 + "1]",
}


@pytest.mark.parametrize("kind", HANGING)
@pytest.mark.realtime
def test_what_settings_need_not_have_is_refused_before_it_is_built(kind: str) -> None:
    began = time.monotonic()
    with pytest.raises((yaml.YAMLError, ValueError)):
        load_yaml(HANGING[kind])
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize(
    "text", ["threads: 1\nthreads: 2", "a: {b: 1, c: [x], b: 2}", "{a: {x: 1}, a: {y: 1}}", "'a': 1\na: 2"]
)
def test_a_setting_that_is_given_twice_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="is given twice"):
        load_yaml(text)


def test_equal_names_in_different_places_are_different_settings() -> None:
    text = "a: {a: a, b: a}\nb: [a, a, {a: [a, a]}, {a: 1}]\n? {a: 1}\n: a\n"
    check_yaml(text)
    assert load_yaml(text.partition("?")[0]) == {
        "a": {"a": "a", "b": "a"},
        "b": ["a", "a", {"a": ["a", "a"]}, {"a": 1}],
    }


def test_settings_are_read_as_before() -> None:
    deep = "[" * DEEPEST_YAML + "1" + "]" * DEEPEST_YAML
    check_yaml(deep)
    with pytest.raises(yaml.YAMLError, match="nested"):
        load_yaml(f"[{deep}]")
    text = 'a: 1\nb: [x, \'y & *z\', "<<", R&D]\nc: {d: 1.5, e: true}\n"<<": quoted\n'
    assert load_yaml(text) == yaml.safe_load(text)
    assert load_yaml("") is None


def test_numbers_to_the_base_of_sixty_are_text() -> None:
    assert load_yaml("a: 72:1\nb: 1:30.5\nc: [-1:2, 72]") == {"a": "72:1", "b": "1:30.5", "c": ["-1:2", 72]}


def test_texts_that_people_name_on_a_command_line_are_no_pipes(tmp_path: Path) -> None:
    path = fifo(tmp_path / "pipe.lark")
    with pytest.raises(OptionsError, match="not a regular file"):
        read_grammar(path)
    text = tmp_path / "text"
    text.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    assert read_text(text, 100) == "a\nb\nc\n"
