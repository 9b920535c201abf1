# SPDX-License-Identifier: Apache-2.0
"""Puts what the commands read beside the code into the wheel: configuration, default models and message definitions.

In the clone they lie at its root, where people look for them (specnav.paths); the rest is in pyproject.toml.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

DATA = {
    "config": "config",
    "default_models": "default_models",
    "ros2_ws/src/spec_vlm_nav_interfaces/msg": "spec_vlm_nav_interfaces/msg",
}
"""Folders of the clone and where they lie in specnav/data."""


class BuildWithData(build_py):
    """With the folders of DATA."""

    def run(self) -> None:
        """Of an editable installation nothing is copied: it has the clone."""
        super().run()
        if self.editable_mode:
            return
        for source, place in DATA.items():
            target = Path(self.build_lib, "specnav", "data", place)
            shutil.copytree(source, target, dirs_exist_ok=True)  # symbolic links become what they lead to


setup(cmdclass={"build_py": BuildWithData})
