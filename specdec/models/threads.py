# SPDX-License-Identifier: Apache-2.0
"""How many of torch's CPU threads a model is worth."""

from __future__ import annotations

import torch

from specdec.models.loaded import LoadedModel

_SMALL_MODEL_PARAMETERS = 100_000_000


def is_small(model: LoadedModel) -> bool:
    """Whether an operation takes no longer than its overhead: a small model on a CPU."""
    return model.device.type == "cpu" and model.parameter_count < _SMALL_MODEL_PARAMETERS


def set_threads(threads: int, model: LoadedModel) -> None:
    """Set torch's CPU threads: as configured, or one where the model is so small that more only get in each other's
    way: on a machine with other work, an answer takes ten times as long while one waits for another in every
    operation.
    """
    if threads:
        torch.set_num_threads(threads)
    elif is_small(model):
        torch.set_num_threads(1)
