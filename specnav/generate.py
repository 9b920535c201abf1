# SPDX-License-Identifier: Apache-2.0
"""`specnav generate`: one answer over a real edge and cloud, streamed to stdout as tokens are verified.

Without `--connect` a verifier process is started on loopback for this answer and stopped afterwards.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloud_verifier.config import ServerConfig
from specdec.errors import SpecdecError
from specdec.link.binding import check_address
from specdec.options import DecodingOptions, GenerationOptions, ModelOptions
from specdec.settings import REQUIRED, check_settings, same_as, setting, values_for
from specdec.settings_files import read_file
from specnav.edge_settings import EdgeSettings
from specnav.errors import UsageError
from specnav.paths import DEFAULT_DRAFT, DEFAULT_TARGET
from specnav.published.pairs import LOOKUP_METHOD, pair_named

if TYPE_CHECKING:
    from specdec.edge.stats import AnswerStats
    from specdec.methods import Method

MAX_IMAGE_BYTES = 32 * 1024 * 1024
MOST_PROMPT_BYTES = 1024 * 1024
STDIN = "-"


@dataclass(frozen=True)
class GenerateConfig:
    """The prompt, the models and the decoding settings. `connect` None: start a verifier locally."""

    text: str = setting(REQUIRED, "The prompt (or instruction); - reads it from standard input.", positional=True)
    images: tuple[Path, ...] = setting(
        (), "JPEG or PNG file; may be given several times.", metavar="FILE", flags=("--image",)
    )
    method: str = same_as(DecodingOptions, "method")
    connect: str | None = same_as(EdgeSettings, "connect")
    key: Path | None = same_as(EdgeSettings, "key")
    pair: str | None = same_as(EdgeSettings, "pair")
    target_model: str | None = same_as(EdgeSettings, "target_model")
    draft_model: str | None = same_as(EdgeSettings, "draft_model")
    gguf: str = same_as(ModelOptions, "gguf")
    exits: str = same_as(ModelOptions, "exits")
    exit_layers: str = same_as(ModelOptions, "exit_layers")
    quantize: str = same_as(ModelOptions, "quantize")
    pixels: int = same_as(ModelOptions, "pixels")
    compile: bool = same_as(ModelOptions, "compile")
    compile_draft: bool = same_as(EdgeSettings, "compile_draft")
    verdict_log: str = same_as(ServerConfig, "verdict_log")
    verdict_log_contents: str = same_as(ServerConfig, "verdict_log_contents")
    device: str = same_as(ModelOptions, "device")
    gamma: int = same_as(DecodingOptions, "gamma")
    temperature: float = same_as(GenerationOptions, "temperature")
    top_k: int = same_as(GenerationOptions, "top_k")
    top_p: float = same_as(GenerationOptions, "top_p")
    min_p: float = same_as(GenerationOptions, "min_p")
    repetition_penalty: float = same_as(GenerationOptions, "repetition_penalty")
    logit_bias: tuple[str, ...] = setting(
        (), "Add VALUE to the logit of a token id; may be given several times.", metavar="ID=VALUE"
    )
    seed: int = same_as(GenerationOptions, "seed")
    max_new_tokens: int = same_as(GenerationOptions, "max_new_tokens")
    patience_s: float = same_as(DecodingOptions, "patience_s")
    min_new_tokens: int = same_as(GenerationOptions, "min_new_tokens")
    stop: tuple[str, ...] = setting(
        (), "End the answer once it contains this text; may be given several times.", metavar="TEXT"
    )
    grammar: Path | None = setting(
        None,
        "Constrain the answer to this grammar: a .lark, .gbnf, .regex or .json (schema) file.",
        metavar="FILE",
    )
    stats: bool = setting(False, "Print decoding statistics on stderr.")

    def __post_init__(self) -> None:
        """Raises UsageError."""
        check_settings(self, UsageError)
        if self.connect is not None:
            check_address(self.connect, "--connect", UsageError)


def read_images(paths: tuple[Path, ...]) -> tuple[bytes, ...]:
    """The files' bytes. Raises UsageError for a file that is missing, too large, or neither JPEG nor PNG."""
    images = []
    for path in paths:
        try:
            content = read_file(path, MAX_IMAGE_BYTES, links=True)
        except OSError as error:
            raise UsageError(f"cannot read image {path}: {error.strerror}") from error
        if not content.startswith((b"\xff\xd8\xff", b"\x89PNG")):
            raise UsageError(f"{path} is neither a JPEG nor a PNG file")
        images.append(content)
    return tuple(images)


def read_biases(pairs: tuple[str, ...]) -> tuple[tuple[int, float], ...]:
    """(token id, bias) of every ID=VALUE; raises UsageError for anything else."""
    biases = []
    for pair in pairs:
        token, _, value = pair.partition("=")
        try:
            biases.append((int(token), float(value)))
        except ValueError:
            raise UsageError(f"--logit-bias {pair!r} is not ID=VALUE, like 42=-5.5") from None
    return tuple(biases)


def read_prompt(given: str) -> str:
    """The prompt: what was given, or of "-" what standard input holds up to its end. Raises UsageError."""
    try:
        if given != STDIN:
            data = given.encode("utf-8", "surrogateescape")  # as it was typed, whatever the locale knows of it
        elif sys.stdin is None:
            raise UsageError("standard input is closed: give the prompt as an argument, or pipe it in")
        else:
            data = sys.stdin.buffer.read(MOST_PROMPT_BYTES + 1)
        if len(data) > MOST_PROMPT_BYTES:
            raise UsageError(f"the prompt has more than {MOST_PROMPT_BYTES} bytes: shorten it")
        text = data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeError as error:
        raise UsageError(f"the prompt is not text in UTF-8 ({error})") from error
    if not text.strip():
        raise UsageError("the prompt is empty")
    return text


def run_generate(config: GenerateConfig) -> int:
    """Stream the answer; returns the exit code. Raises UsageError or a SpecdecError."""
    if sys.stdout is None:
        raise UsageError("standard output is closed, so the answer cannot be printed: send it to a file or a pipe")
    question = read_prompt(config.text)
    _check(config)
    images = read_images(config.images)
    options = _generation_options(config)
    models = _named_models(config)
    method = models.method
    if config.connect is not None and config.target_model is not None and not method.split:
        raise UsageError("with --connect the server chooses the target: leave out --target-model or --connect")
    with ExitStack() as stack:
        wait_for_verifier = None
        if config.connect is None:
            from specnav.supervise.verifier_process import verifier_process

            wait_for_verifier = stack.enter_context(verifier_process(_verifier_config(config, models)))

        # Imported while the verifier starts: torch alone takes seconds.
        import torch

        from specdec.edge.decoder import EdgeDecoder, connect
        from specdec.models import GgufOptions, chat_prompt, load_draft, load_draft_tokenizer, load_model
        from specdec.models.threads import set_threads
        from specdec.text.streaming import StreamingText
        from specdec.verdict_log import VerdictLog

        if wait_for_verifier is not None:
            # Two processes share this machine's cores; with all threads each, they would slow each other down.
            torch.set_num_threads(max(1, (torch.get_num_threads() + 1) // 2))
        # Where nothing is drafted with a model here, its tokenizer is enough.
        how: dict[str, Any] = {"device": config.device, "quantize": config.quantize, "pixels": config.pixels}
        drafts = {**how, "gguf": GgufOptions.read(config.gguf), "compile": config.compile_draft}
        draft = load_draft(models.draft, **drafts) if method.needs_draft_model else None
        tokenizer = load_draft_tokenizer(models.draft) if draft is None else draft.tokenizer
        endpoint = config.connect if wait_for_verifier is None else wait_for_verifier()
        assert endpoint is not None
        link = stack.enter_context(connect(endpoint, key=config.key))
        front = load_model(models.target, **how, compile=config.compile) if method.split else None
        if (ours := front or draft) is not None:
            set_threads(0, ours)
        log = None
        if config.verdict_log:
            log = VerdictLog(config.verdict_log, config.verdict_log_contents)
            stack.callback(log.close)
        decoder = EdgeDecoder(
            link, draft, method=method.name, gamma=config.gamma, resume_timeout_s=config.patience_s,
            front_model=front, tokenizer=tokenizer, verdict_log=log,
        )  # fmt: skip
        link.ensure_connected()  # fail at once, not after config.patience_s, if nothing answers at the address
        text = StreamingText(tokenizer)
        prompt = chat_prompt(draft or tokenizer, question, images=images)
        begun = False
        try:
            for chunk in decoder.generate(prompt, options):
                begun = True
                sys.stdout.write(text.push(chunk))
                sys.stdout.flush()
        except SpecdecError:
            if begun:  # the error gets a line of its own
                print(text.finish(), flush=True)
            raise
        sys.stdout.write(text.finish() + "\n")
        if config.stats:
            print(_statistics(method.name, decoder.stats), file=sys.stderr)
    return 0


def _check(config: GenerateConfig) -> None:
    """Raise UsageError where options contradict one another."""
    if config.min_new_tokens > config.max_new_tokens:
        raise UsageError(
            f"--min-new-tokens {config.min_new_tokens} is more than --max-new-tokens {config.max_new_tokens}"
        )
    if config.key is not None and config.connect is None:
        raise UsageError("--key is for a verifier that runs elsewhere: give its address with --connect")


def _generation_options(config: GenerateConfig) -> GenerationOptions:
    from specdec.text.grammars import read_grammar

    grammar = "" if config.grammar is None else read_grammar(config.grammar)
    biases = read_biases(config.logit_bias)
    shared = values_for(GenerationOptions, config)
    return GenerationOptions(**shared, logit_bias=biases, stop=config.stop, grammar=grammar)


@dataclass(frozen=True)
class _Models:
    """What is decoded with. draft: at least a tokenizer. exits: "": none."""

    method: Method
    target: str
    draft: str
    exits: str


def _named_models(config: GenerateConfig) -> _Models:
    """The models that the options or a pair name. A pair without a draft drafts by lookups, and this is told."""
    from specdec.methods import get_method

    method = get_method(config.method)
    drafts = method.needs_draft_model or method.cloud_drafts
    if config.pair is None:
        target = config.target_model or str(DEFAULT_TARGET)
        # Where nothing is drafted with a model, its tokenizer alone is used: that of the target.
        draft = config.draft_model or (str(DEFAULT_DRAFT) if drafts or config.target_model is None else target)
        return _Models(method, target, draft, config.exits)
    pair = pair_named(config.pair)
    target, draft = config.target_model or pair.target, config.draft_model or pair.draft
    if not draft and drafts:
        print(f"specnav: {pair.tells_no_draft(f'{LOOKUP_METHOD} drafts')}", file=sys.stderr)
        method = get_method(LOOKUP_METHOD)
    return _Models(method, target, draft or target, config.exits or pair.exits)


def _verifier_config(config: GenerateConfig, models: _Models) -> ServerConfig:
    in_cloud = models.method.cloud_drafts
    return ServerConfig(
        models.target,
        draft_model=models.draft if in_cloud else "",
        gguf=config.gguf if in_cloud else "",
        quantize=config.quantize,
        pixels=config.pixels,
        compile=config.compile,
        device=config.device,
        exits=models.exits,
        exit_layers=config.exit_layers,
    )


def _statistics(method: str, stats: AnswerStats) -> str:
    return (
        f"{method}: {stats.tokens} tokens in {stats.total_ms:.0f} ms, first after {stats.ttft_ms:.0f} ms; "
        f"{len(stats.rounds)} rounds, {stats.tau:.2f} tokens a round, {stats.acceptance:.0%} of drafts accepted"
    )
