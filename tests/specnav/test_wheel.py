"""A wheel, installed where there is no clone: the commands find their models, questions and settings from anywhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.realtime]

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
    "OMP_NUM_THREADS": "1"
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that has the wheel, and what the wheel needs from the one of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    paths = folder / "paths.cfg"  # nothing is built in the clone: what an earlier build left would come along
    paths.write_text(f"[build]\nbuild_base={folder}/build\n[egg_info]\negg_base={folder}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(
        [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)],
        folder,
        DIST_EXTRA_CONFIG=str(paths),
    )
    run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], folder)
    (packages,) = (folder / "venv").glob("lib/python3*/site-packages")
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (wheel,) = folder.glob("*.whl")
    into = ["--python", str(folder / "venv/bin/python")]
    run([*pip, *into, "install", "-q", "--no-deps", "--no-index", "--force-reinstall", str(wheel)], folder)
    return folder / "venv" / "bin"


def run(command: list[str], where: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=where,
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@contextmanager
def serving(command: list[str], where: Path, ready: str) -> Iterator[str]:
    """A server process; yields what the pattern finds in the line that says that it is ready."""
    log = where / "server.log"
    with (
        log.open("w") as said,
        subprocess.Popen(command, cwd=where, env=ENVIRONMENT, stderr=said, stdout=said) as process,
    ):
        try:
            for _ in range(600):
                if found := re.search(ready, log.read_text()):
                    yield found[1]
                    return
                try:
                    process.wait(0.1)
                    break
                except subprocess.TimeoutExpired:
                    continue
            raise AssertionError(f"it is not ready: {log.read_text()[-2000:]}")
        finally:
            process.terminate()


def test_the_package_is_that_of_the_wheel_and_has_its_data(installed: Path, tmp_path: Path) -> None:
    code = "import specnav.paths as p; print(p.IN_CLONE, p.DATA, p.RUNS, *p.CONFIG.glob('points/*.yaml'))"
    in_clone, data, runs, *points = run([str(installed / "python"), "-c", code], tmp_path).split()
    assert in_clone == "False" and Path(data).is_relative_to(installed.parent)
    assert Path(runs) == tmp_path / "runs" and len(points) > 5
    found = {
        row["name"]: row["status"]
        for row in json.loads(run([str(installed / "specnav"), "doctor", "--json"], tmp_path))
    }
    assert found["nav-target"] == found["nav-draft"] == "ok"


def test_an_answer_and_a_benchmark_with_what_is_shipped(installed: Path, tmp_path: Path) -> None:
    specnav = str(installed / "specnav")
    assert run([specnav, "generate", "find the silver bottle", "--max-new-tokens", "4"], tmp_path).strip()
    run([specnav, "bench", "run", "--methods", "ar,sd", "--limit", "1", "--max-new-tokens", "4"], tmp_path)
    (results,) = tmp_path.glob("runs/bench-*/results.json")
    written = json.loads(results.read_text())
    assert all(row["identical_to_ar"] for row in written["rows"])
    assert written["config"]["target_model"] == "default_models/text-target"


def test_a_verifier_and_an_api_at_the_edge(installed: Path, tmp_path: Path) -> None:
    specnav = str(installed / "specnav")
    (models,) = installed.parent.glob("lib/python3*/site-packages/specnav/data/default_models")
    serve = [specnav, "serve", "--bind", "tcp://127.0.0.1:0", "--model", str(models / "text-target")]
    first, second = tmp_path / "cloud", tmp_path / "edge"
    first.mkdir()
    second.mkdir()
    with serving(serve, first, r'"ready".*"bind": "(tcp://[^"]+)"') as address:
        api = [specnav, "api", "--connect", address, "--bind", "127.0.0.1:0"]
        with serving(api, second, r"(http://127\.0\.0\.1:\d+)") as url:
            body = {"model": "text-target", "prompt": "what is", "max_tokens": 3}
            asked = urllib.request.Request(
                f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(asked, timeout=60) as reply:
                assert json.load(reply)["usage"]["completion_tokens"] == 3
