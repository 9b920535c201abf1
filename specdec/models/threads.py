# SPDX-License-Identifier: Apache-2.0
"""Chooses the number of torch's CPU threads for a model."""

from __future__ import annotations

import os

import torch

from specdec.errors import OptionsError
from specdec.models.loaded import LoadedModel

_SMALL_MODEL_PARAMETERS = 100_000_000


def check_threads(threads: int) -> None:
    """Raise OptionsError for more threads than this machine has CPU cores: they would only wait for one another."""
    cores = os.cpu_count()
    if cores is not None and threads > cores:
        raise OptionsError(f"threads = {threads} is more than this machine's {cores} CPU cores: give at most {cores}")


def is_small(model: LoadedModel) -> bool:
    """Whether the model is so small, on a CPU, that its operations take no longer than their overhead."""
    return model.device.type == "cpu" and model.parameter_count < _SMALL_MODEL_PARAMETERS


def set_threads(threads: int, model: LoadedModel) -> None:
    """Set torch's CPU threads: the configured number, or 1 for a small model. With more threads and other load on the
    machine, a small model's threads wait for one another in every operation, and an answer takes ten times as long.
    """
    if threads:
        torch.set_num_threads(threads)
    elif is_small(model):
        torch.set_num_threads(1)
