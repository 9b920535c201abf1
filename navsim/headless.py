# SPDX-License-Identifier: Apache-2.0
"""Choice of the off-screen OpenGL back-end, made before `mujoco` is imported for the first time.

MuJoCo reads the choice from the variable MUJOCO_GL at import time and from nowhere else; a choice the user made stands.
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
    """The back-end to use: "egl" where libEGL is installed, else "osmesa". Raises NoDisplay when neither is."""
    for backend, library in _BACKENDS:
        if find_library(library):
            return backend
    raise NoDisplay(f"no off-screen OpenGL found; install it with: {INSTALL_HINT}")


def explain(error: Exception) -> NoDisplay:
    """The error to raise when importing `mujoco` or making a context failed, with what to do about it."""
    backend = os.environ.get("MUJOCO_GL", "unset")
    return NoDisplay(
        f"rendering without a screen failed (MUJOCO_GL={backend}: {error}); unset MUJOCO_GL or install: {INSTALL_HINT}"
    )


def prepare_headless_rendering() -> None:
    """Make the next `import mujoco` render without a screen; leaves a MUJOCO_GL that is already set alone."""
    if "MUJOCO_GL" in os.environ or "mujoco" in sys.modules or sys.platform != "linux":
        return
    os.environ["MUJOCO_GL"] = choose_backend()
