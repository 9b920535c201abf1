# SPDX-License-Identifier: Apache-2.0
"""Choice of the off-screen OpenGL back-end, made before `mujoco` is imported for the first time.

MuJoCo reads the back-end only from the variable MUJOCO_GL, at import time. A value set by the user is kept.
"""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Callable

from navsim.errors import NoDisplay

_BACKENDS = (("egl", "EGL"), ("osmesa", "OSMesa"))
INSTALL_HINT = "sudo apt-get install -y libegl1 libgl1-mesa-dri libopengl0   (or libosmesa6)"


def choose_backend(find_library: Callable[[str], str | None] = ctypes.util.find_library) -> str:
    """Return the back-end: "egl" if libEGL is installed, else "osmesa". Raises NoDisplay if neither is installed."""
    for backend, library in _BACKENDS:
        if find_library(library):
            return backend
    raise NoDisplay(f"no off-screen OpenGL found; install it with: {INSTALL_HINT}")


def explain(error: Exception) -> NoDisplay:
    """Return the error to raise when importing `mujoco` or creating a context failed, with a hint."""
    backend = os.environ.get("MUJOCO_GL", "unset")
    return NoDisplay(
        f"rendering without a screen failed (MUJOCO_GL={backend}: {error}); unset MUJOCO_GL or install: {INSTALL_HINT}"
    )


def prepare_headless_rendering() -> None:
    """Make the next `import mujoco` render without a screen; leaves a MUJOCO_GL that is already set alone."""
    if "MUJOCO_GL" in os.environ or "mujoco" in sys.modules or sys.platform != "linux":
        return
    os.environ["MUJOCO_GL"] = choose_backend()
