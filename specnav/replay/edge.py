# SPDX-License-Identifier: Apache-2.0
"""Sets up a replay: a verifier (started here or running elsewhere), the draft model, and a decoder per method."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from cloud_verifier.config import ServerConfig
from cloud_verifier.serving import settle_memory
from spec_vlm_nav.language.grammar import action_grammar
from spec_vlm_nav.model.asking import grammars_of, prompt_spec
from spec_vlm_nav.model.decider import ACTIONS
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.energy import Meter, find_sensors
from specdec.methods import get_method
from specdec.models import GgufOptions, LoadedModel, load_draft, load_draft_tokenizer
from specdec.models.threads import set_threads
from specdec.options import RESUME_TIMEOUT_S, GenerationOptions
from specnav.errors import UsageError
from specnav.models import may_be_model
from specnav.paths import DEFAULT_TARGET
from specnav.replay.config import ReplayConfig
from specnav.replay.deciding import MethodDecider, Prompter
from specnav.supervise.verifier_process import verifier_process

CONNECT_TIMEOUT_S, REPLY_TIMEOUT_S = 5.0, 10.0


@dataclass(frozen=True)
class ReplayEdge:
    """Everything that decides. threads: CPU threads per forward pass here. meter: measures energy per decision."""

    deciders: tuple[MethodDecider, ...]
    threads: int
    meter: Meter = field(default_factory=lambda: Meter([]))


def check_methods(config: ReplayConfig) -> None:
    """Check the methods and models before anything is started. Raises UsageError, OptionsError."""
    for name in config.methods:
        if get_method(name).split:
            raise UsageError(
                f"method {name} runs layers of the target on the robot, which replay does not support"
            )
    for role, model in (("target", config.target_model), ("draft", config.draft_model)):
        if not may_be_model(model):
            raise UsageError(f"{role} model {model} is missing or not a Hugging Face folder; give another")
    if config.connect is not None and config.target_model != str(DEFAULT_TARGET):
        raise UsageError(
            "with --connect the server chooses the target: leave out --target-model or --connect"
        )


def open_edge(config: ReplayConfig, stack: ExitStack) -> ReplayEdge:
    """Start the verifier or connect to it, and load the draft. Raises UsageError and specdec's errors."""
    import torch

    methods = [get_method(name) for name in config.methods]
    in_cloud = any(one.cloud_drafts for one in methods)
    endpoint = config.connect
    if endpoint is None:
        endpoint = stack.enter_context(
            verifier_process(
                ServerConfig(
                    config.target_model,
                    draft_model=config.draft_model if in_cloud else "",
                    gguf=config.gguf if in_cloud else "",
                    quantize=config.quantize,
                    device=config.device,
                    exits=config.exits,
                    exit_layers=config.exit_layers,
                )
            )
        )()
    link = stack.enter_context(connect(endpoint, CONNECT_TIMEOUT_S, REPLY_TIMEOUT_S, key=config.key))
    link.ensure_connected()  # report a missing verifier now, without trying to resume
    draft: LoadedModel | None = None
    if any(one.needs_draft_model for one in methods):
        gguf = GgufOptions.read(config.gguf)
        draft = load_draft(config.draft_model, config.device, quantize=config.quantize, gguf=gguf)
        set_threads(0, draft)
    settle_memory()
    tokenizer = draft.tokenizer if draft is not None else load_draft_tokenizer(config.draft_model)
    grammar = ""
    if config.answer_grammar == ACTIONS:
        grammar = action_grammar(draft.own_grammars if draft else grammars_of(tokenizer), config.max_new_tokens)
    prompter = Prompter(
        prompt_spec(config.draft_model, config.prompt),
        tokenizer,
        config.picture(),
        GenerationOptions(config.max_new_tokens, config.temperature, config.seed, grammar=grammar),
    )
    meter = Meter(find_sensors()).start()
    stack.callback(meter.close)
    deciders = tuple(
        MethodDecider(
            name,
            EdgeDecoder(
                link,
                draft if one.needs_draft_model else None,
                name,
                config.gamma,
                RESUME_TIMEOUT_S,
                tokenizer=tokenizer,
            ),
            prompter,
            meter=meter,
        )
        for name, one in zip(config.methods, methods, strict=True)
    )
    return ReplayEdge(deciders, torch.get_num_threads(), meter)
