# SPDX-License-Identifier: Apache-2.0
"""The options of an answer. They are checked once, here, so that nothing downstream has to."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.errors import OptionsError
from specdec.settings import Setting, check_settings, setting

MAX_NEW_TOKENS = 1 << 20
MAX_SEED = (1 << 63) - 1
MAX_TOKEN_ID = (1 << 31) - 1
MAX_LOGIT_BIAS = 1e4
MAX_BIASED_TOKENS = 1024
MAX_STOPS = 64
MAX_STOP_BYTES = 1024
MAX_GRAMMAR_BYTES = 16_384
LEAST_TEMPERATURE = 1e-4
"""Logits divided by a smaller temperature overflow float32."""
RESUME_TIMEOUT_S = 5.0
"""How long an answer keeps retrying after a lost link; the default of all programs."""
QUANTIZATIONS = ("none", "8bit", "4bit")
DTYPES = ("auto", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class ModelOptions:
    """How a model is loaded."""

    device: str = setting("auto", "Device of the models: auto, cpu, cuda, cuda:1.")
    dtype: str = setting("auto", "Number type of the models.", choices=DTYPES)
    quantize: str = setting("none", "Quantise the weights with bitsandbytes.", choices=QUANTIZATIONS)
    pixels: int = setting(
        0,
        "Most pixels of a picture; larger pictures are scaled down. 0: about a megapixel.",
        0,
        64_000_000,
        metavar="N",
    )
    gguf: str = setting(
        "",
        "Options of a GGUF draft: threads, gpu_layers (-1: all), context (tokens), kv (f32, f16 or q8_0), "
        "mmproj (file).",
        metavar="NAME=VALUE,...",
    )
    exits: str = setting(
        "",
        "Folder of the target's early exits, for hints; none: no hints.",
        metavar="FOLDER",
        shown="NAME-exits beside a target NAME-target",
    )
    exit_layers: str = setting(
        "auto",
        "Exits to use: auto (the few that pay off, at most 4, one if a layer takes no longer than an exit), all, "
        "every:K, or layers like 1,3,5.",
        metavar="WHICH",
    )
    deterministic: bool = setting(
        False,
        "Slower: the target's results do not depend on the other rows of a forward pass, so answers equal those of ar "
        "in half precision, too.",
    )
    compile: bool = setting(
        False, "Compile the target's layers with torch: for GPUs; takes seconds and needs a C++ compiler."
    )


@dataclass(frozen=True)
class DecodingOptions:
    """How an edge decodes: the method and what all methods share.

    Attributes:
        method: Name of a method, with axes (`sd+length:token:0.7`); see specdec.methods.
        gamma: Draft tokens per round.
        patience_s: Seconds that an answer keeps retrying after a lost link or with a busy verifier.
    """

    method: str = setting(
        "fsd",
        "How answers are decoded: fsd, auto, sd, ar, ... (an unknown name lists them all).",
        metavar="NAME",
    )
    gamma: int = setting(4, "Draft tokens per round.", 1, 32, metavar="N")
    patience_s: float = setting(
        RESUME_TIMEOUT_S,
        "How long an answer keeps retrying after a lost link or with a busy verifier.",
        0,
        3600,
        unit="s",
        flags=("--patience",),
    )


@dataclass(frozen=True)
class GenerationOptions:
    """Options of one answer, the same on both sides of the link.

    Attributes:
        max_new_tokens: Longest answer, in tokens; the end-of-sequence token counts, as in Hugging Face `generate`.
        temperature: 0 is greedy decoding. Above 0 (LEAST_TEMPERATURE at least) tokens are sampled: with shared noise
            or, if the method recovers from rejections, by rejection sampling.
        seed: Seed of all random numbers: one seed gives one answer.
        top_k: Sample from the K likeliest tokens; 0 = off.
        top_p: Sample from the likeliest tokens that make up P; 1 = off.
        min_p: Sample from tokens at least P times as likely as the best; 0 = off. The three apply in this order.
        repetition_penalty: Makes tokens of the prompt and of the answer so far less likely, as Hugging Face does; 1 =
            off.
        logit_bias: Pairs (token id, number added to its logit), each id once; kept sorted by id.
        min_new_tokens: The answer ends neither at an EOS nor at a stop string before it has this many tokens.
        stop: The answer ends with the token that completes one of these strings (specdec.text.stop).
        grammar: The answer follows this grammar, in llguidance's dialect of Lark (specdec.text.grammars); "" = off. If
            the grammar allows only one next token, that token is taken.

    Raises:
        OptionsError: A value outside its range, or options that contradict each other.
    """

    max_new_tokens: int = setting(64, "Longest answer.", 1, MAX_NEW_TOKENS, unit="tokens", metavar="N")
    temperature: float = setting(
        0.0, "0 is greedy; above 0, exact samples of the target's distribution by shared noise.", 0, 100
    )
    seed: int = setting(0, "Seed of all random numbers.", 0, MAX_SEED, metavar="N")
    top_k: int = setting(0, "Sample from the K likeliest tokens only; 0: off.", 0, 1 << 30, metavar="K")
    top_p: float = setting(
        1.0, "Sample from the likeliest tokens that make up P; 1: off.", 1e-9, 1, metavar="P"
    )
    min_p: float = setting(
        0.0, "Sample from tokens at least P times as likely as the best; 0: off.", 0, 1, metavar="P"
    )
    repetition_penalty: float = setting(
        1.0, "Above 1, tokens that occurred before become less likely; 1: off.", 0.01, 100
    )
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_new_tokens: int = setting(0, "Shortest answer.", 0, MAX_NEW_TOKENS, unit="tokens", metavar="N")
    stop: tuple[str, ...] = ()
    grammar: str = ""

    def __post_init__(self) -> None:
        check_settings(self)
        if 0.0 < self.temperature < LEAST_TEMPERATURE:
            raise OptionsError(
                f"temperature must be 0 (greedy) or a number from {LEAST_TEMPERATURE} to 100, got {self.temperature!r}"
            )
        object.__setattr__(self, "logit_bias", _checked_biases(self.logit_bias))
        object.__setattr__(self, "stop", _checked_stops(self.stop))
        if (
            not isinstance(self.grammar, str)
            or len(self.grammar.encode("utf-8", "replace")) > MAX_GRAMMAR_BYTES
        ):
            raise OptionsError(f"grammar must be text of at most {MAX_GRAMMAR_BYTES} bytes")


_TOKEN_ID = Setting("", 0, MAX_TOKEN_ID, name="a token id of logit_bias", kind=int)
_BIAS = Setting("", -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS, name="a bias of logit_bias", kind=float)


def _checked_biases(pairs: object) -> tuple[tuple[int, float], ...]:
    if not isinstance(pairs, (tuple, list)) or len(pairs) > MAX_BIASED_TOKENS:
        raise OptionsError(
            f"logit_bias must be at most {MAX_BIASED_TOKENS} pairs of a token id and a bias"
        )
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise OptionsError(f"logit_bias holds {pair!r}: give (token id, bias) pairs")
        _TOKEN_ID.check(pair[0])
        _BIAS.check(pair[1])
    if len({token for token, _ in pairs}) < len(pairs):
        raise OptionsError("logit_bias names a token id twice: give each once")
    return tuple(sorted((token, float(bias)) for token, bias in pairs))


def _checked_stops(stops: object) -> tuple[str, ...]:
    if not isinstance(stops, (tuple, list)) or len(stops) > MAX_STOPS:
        raise OptionsError(f"stop must be a list of at most {MAX_STOPS} strings")
    for stop in stops:
        if not isinstance(stop, str) or not _is_text(stop) or not 1 <= len(stop.encode()) <= MAX_STOP_BYTES:
            raise OptionsError(f"stop holds {stop!r:.80}: give valid text of 1 to {MAX_STOP_BYTES} bytes")
    return tuple(stops)


def _is_text(words: str) -> bool:
    """Whether decoded tokens can contain this: incomplete characters decode to replacement characters."""
    return not any("\ud800" <= character <= "\udfff" or character == "\ufffd" for character in words)
