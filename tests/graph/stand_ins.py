"""Builds stand-ins of ROS packages that are not here (same names and fields) beside the environment, each once.

The result is a prefix of its own, so that only processes that are given its path find the package; without it the
node must say what is missing. Kept under a hash of everything it was built from.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

from tests.graph.harness import ROOT

PACKAGES = Path(__file__).parent
PREFIX = Path(sys.prefix) / "test-overlays"


def _builder() -> ModuleType:
    """scripts/build_interfaces.py, which knows the wheels and sourced installations."""
    spec = importlib.util.spec_from_file_location("build_interfaces", ROOT / "scripts/build_interfaces.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in(name: str) -> Path:
    """Build a package of this folder if needed (unitree_api, nav2_msgs); returns the folder to put on PYTHONPATH."""
    builder = _builder()
    ros = builder.sourced_ros()
    builder.PACKAGE = PACKAGES / name  # what its hash is made of
    target = PREFIX / f"{name}-{builder.content_hash(ros)[:16]}"
    if not target.is_dir():
        if not ros:
            builder.correct_wheel_paths()
        PREFIX.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=PREFIX))
        try:
            _build(builder, ros, scratch, target, name)
            # One rename at the end: a build that was interrupted is none.
            (scratch / "install").rename(target)
        except OSError:  # another client was faster
            if not target.is_dir():
                raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return next(target.glob("lib/python3*/*-packages"))


def _build(builder: ModuleType, ros: list[str], scratch: Path, target: Path, name: str) -> None:
    prefixes = os.pathsep.join([*ros, sys.prefix])
    environment = {**os.environ, "AMENT_PREFIX_PATH": prefixes, "CMAKE_PREFIX_PATH": prefixes}
    environment["PATH"] = os.pathsep.join([f"{sys.prefix}/bin", environment.get("PATH", "")])
    builder.run(
        [
            "cmake", "-S", str(PACKAGES / name), "-B", str(scratch / "build"), "-DBUILD_TESTING=OFF",
            f"-DCMAKE_INSTALL_PREFIX={scratch / 'install'}", f"-DPython3_EXECUTABLE={sys.executable}",
        ],
        environment,
    )  # fmt: skip
    builder.run(["cmake", "--build", str(scratch / "build"), "--parallel", "2"], environment)
    builder.run(["cmake", "--install", str(scratch / "build")], environment)
    version = sysconfig.get_python_version()
    for package in (scratch / "install").glob(f"lib/python{version}/*-packages/{name}"):
        libraries = str(target / "lib")
        (package / "__init__.py").write_text(builder.PRELOAD.format(name=name, libraries=libraries))
