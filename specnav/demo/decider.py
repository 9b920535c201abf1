# SPDX-License-Identifier: Apache-2.0
"""The command line of the deciding node for a demo's settings; starts nothing."""

from __future__ import annotations

from collections.abc import Mapping

from specnav.demo.config import DemoConfig
from specnav.supervise.children import Parameter, decider_spec
from specnav.supervise.processes import ChildSpec


def vlm_spec(
    config: DemoConfig,
    endpoint: str,
    method: str,
    prefetch: bool | None,
    name: str,
    environment: Mapping[str, str],
) -> ChildSpec:
    """The node for an endpoint of the link. prefetch: None: as set in the parameter file."""
    parameters: dict[str, Parameter] = {
        "verifier": endpoint,
        "method": method,
        "draft_model": config.draft_model,
        "gguf": config.gguf,
        "gamma": config.gamma,
        "max_new_tokens": config.max_new_tokens,
        "max_decisions": config.max_decisions,
        "temperature": float(config.temperature),
        "seed": config.seed,
        "exploration": config.exploration,
    }
    if prefetch is not None:
        parameters["prefetch"] = prefetch
    return decider_spec(name, (config.sim_config, config.robot_config), environment, parameters)
