# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share where they declare their own: each as the settings class has it."""

from __future__ import annotations

from typing import Annotated

from specnav.cli.from_settings import option_of
from specnav.edge_settings import EdgeSettings

SHIPPED_TARGET = {"model": {"default": None, "shown": "the shipped one"}}
"""Of a verifier's settings in commands that have a target of their own."""

Target = Annotated[str | None, option_of(EdgeSettings, "target_model")]
Pair = Annotated[str | None, option_of(EdgeSettings, "pair")]
