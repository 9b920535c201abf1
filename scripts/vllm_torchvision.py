# SPDX-License-Identifier: Apache-2.0
"""Lets `torchvision` be imported beside a torch for CPUs. `make setup-vllm` puts this into .venv-vllm, where every
process loads it as it starts, vLLM's own children included.

The torchvision that vLLM brings was built for CUDA: its import asks for operators that it lacks here, and that nothing
calls. They are declared before. Standard library only; torch is imported when torchvision is.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_kept: list[Any] = []


class Declares(importlib.abc.MetaPathFinder):
    """Finds nothing; declares the operators when somebody looks for torchvision."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Always None."""
        if name == "torchvision" and not _kept:
            import torch

            if torch.version.cuda is None:
                made: Any = torch.library.Library
                library = made("torchvision", "DEF")
                _kept.append(library)  # they are there for as long as it is
                for operator in ("nms", "qnms"):
                    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return None


sys.meta_path.insert(0, Declares())
