"""The server as a process: ready line, signals, exit codes, one-line errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from conftest_servers import Pair

from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import LinkLost
from specdec.models import chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.supervise.processes import ChildSpec
from tests.graph.forking import ForkedProcess, forking_parent

pytestmark = pytest.mark.graph
COMMAND = [sys.executable, "-m", "cloud_verifier"]


@contextmanager
def started(
    arguments: Sequence[str], afresh: bool = False, descriptors: int = 0
) -> Iterator[tuple[ForkedProcess | subprocess.Popen[bytes], IO[str], IO[str]]]:
    """A verifier, its stdout and its stderr. afresh: it comes up as a user's does, and is not forked. descriptors: it
    may have no more, afresh.
    """
    argv = [*COMMAND, *arguments]
    if descriptors:
        argv, afresh = ["bash", "-c", f'ulimit -n {descriptors} && exec "$@"', "-", *argv], True
    (out_reads, out_writes), (err_reads, err_writes) = os.pipe(), os.pipe()
    with open(out_reads, encoding="utf-8") as out, open(err_reads, encoding="utf-8") as err:
        with open(out_writes, "wb") as to_out, open(err_writes, "wb") as to_err:
            forked = None if afresh else forking_parent().start(ChildSpec("", argv), to_out, to_err)
            process = forked or subprocess.Popen(argv, stdout=to_out, stderr=to_err)
        try:
            yield process, out, err
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(10)


@contextmanager
def verifier(
    model: Path | str,
    bind: str = "tcp://127.0.0.1:0",
    arguments: Sequence[str] = (),
    afresh: bool = False,
    descriptors: int = 0,
) -> Iterator[tuple[ForkedProcess | subprocess.Popen[bytes], str, IO[str], IO[str]]]:
    """One that is ready: the process, its address, and its stdout and what comes of its stderr."""
    with started(["--bind", bind, "--model", str(model), *arguments], afresh, descriptors) as (process, out, err):
        for line in err:
            record = json.loads(line)
            if record["event"] == "ready":
                break
        else:
            raise AssertionError("the verifier ended before it was ready")
        yield process, record["bind"], out, err


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signals_end_it_with_exit_code_zero_and_json_to_the_end(model_root: Path, name: str) -> None:
    with verifier(model_root / "text-target", afresh=name == "SIGTERM") as (process, address, out, err):
        with connect(address) as link:
            link.ensure_connected()
            process.send_signal(getattr(signal, name))
            assert process.wait(10) == 0
        assert out.read() == ""
        assert [json.loads(line)["event"] for line in err][-1] == "stopped"


def test_sigterm_lets_an_answer_in_flight_end(model_root: Path, text_pair: Pair) -> None:
    prompt, options = chat_prompt(text_pair.target, "x" * 20), GenerationOptions(60, 3.0, seed=1)
    got: list[int] = []
    with verifier(model_root / "text-target") as (process, address, *_), connect(address) as link:
        for chunk in EdgeDecoder(link, text_pair.draft, "sd").generate(prompt, options):
            got.extend(chunk)
            if len(got) == len(chunk):
                process.terminate()
        assert process.wait(10) == 0
    assert got == generate_local(text_pair.target, prompt, options)


def test_ctrl_c_in_the_middle_of_an_answer_tells_the_client(model_root: Path, text_pair: Pair) -> None:
    with verifier(model_root / "text-target") as (process, address, *_), connect(address) as link:
        decoder = EdgeDecoder(link, text_pair.draft, "ar")
        with pytest.raises(LinkLost, match=r"shutting down|closed the connection"):
            for _ in decoder.generate(
                chat_prompt(text_pair.target, "x" * 20), GenerationOptions(400, 3.0, seed=1)
            ):
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    process.wait(10)
        assert process.returncode == 0


def test_killed_verifier_is_noticed_and_its_successor_continues(model_root: Path, text_pair: Pair) -> None:
    prompt = chat_prompt(text_pair.target, "kill me")
    options = GenerationOptions(100, temperature=0.9, seed=3)
    right = generate_local(text_pair.target, prompt, options)
    got: list[int] = []
    with verifier(model_root / "text-target") as (process, address, *_):
        link = connect(address, connect_timeout_s=0.5, reply_timeout_s=1.0)
        decoder = EdgeDecoder(link, text_pair.draft)
        with pytest.raises(LinkLost):
            for chunk in decoder.generate(prompt, options):
                got.extend(chunk)
                if len(got) > 10 and process.poll() is None:
                    process.kill()
                    process.wait(5)
                    killed = time.monotonic()
        assert time.monotonic() - killed < 1.5
        assert got == right[: len(got)]
    with verifier(model_root / "text-target", bind=address):
        for chunk in decoder.generate(prompt, options, history=got):
            got.extend(chunk)
    assert got == right


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "/nowhere/model"], "does not exist"),
        (["--model", "{model}", "--bind", "nonsense"], "tcp://HOST:PORT"),
        (["--model", "{model}", "--bind", "{taken}"], "cannot listen"),
        (["--model", "{model}", "--bind", "tcp://0.0.0.0:0"], "give --keys FOLDER"),
        (["--model", "{model}", "--keys", "/nowhere"], "cannot read the server's key /nowhere/server.key"),
        (["--model", "{model}", "--max-sessions", "0"], "max_sessions must be a whole number from 1 to 100000, got 0"),
        (["--model", "{model}", "--quantize", "3bit"], "quantize"),
    ],
    ids=["model", "bind", "port-in-use", "open", "keys", "range", "quantize"],
)
def test_mistakes_are_one_line_and_an_exit_code(
    model_root: Path, text_pair: Pair, servers: dict[str, str], arguments: list[str], words: str
) -> None:
    model, taken = str(model_root / "text-target"), servers[text_pair.target.path]
    filled = [argument.replace("{model}", model).replace("{taken}", taken) for argument in arguments]
    with started(filled, afresh="/nowhere/model" in filled) as (process, _, err):
        said = err.read()
        assert process.wait(60) != 0
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if not line.startswith("{")]
    assert len(lines) == 1 and words in lines[0]
