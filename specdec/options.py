"""What a caller may ask of one answer; checked once, here, so that nothing downstream has to."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.errors import OptionsError

MAX_NEW_TOKENS = 1 << 20
MAX_SEED = (1 << 63) - 1
MAX_TOKEN_ID = (1 << 31) - 1
MAX_LOGIT_BIAS = 1e4
MAX_BIASED_TOKENS = 1024
MAX_STOPS = 64
MAX_STOP_BYTES = 1024
MAX_GRAMMAR_BYTES = 16_384
LEAST_TEMPERATURE = 1e-4
"""Logits over a smaller one leave the range of float32: a distribution of nothing."""
RESUME_TIMEOUT_S = 5.0
"""How long an answer tries to go on after a lost link: the default of every program that gives answers."""


@dataclass(frozen=True)
class GenerationOptions:
    """Options of one answer, the same on both sides of the link.

    max_new_tokens counts the end-of-sequence token like Hugging Face `generate` does.
    temperature 0 is greedy decoding; above 0 (LEAST_TEMPERATURE at least) the shared-noise sampler picks, seeded by
    `seed` (TRAPS 17a), after top_k (0 = off), top_p (1 = off) and min_p (0 = off).
    repetition_penalty (1 = off) makes tokens of the prompt and of the answer so far less likely, as Hugging Face
    does. logit_bias: (token id, what to add to its logit) pairs, each id once; kept in the order of the ids.
    min_new_tokens: the answer ends neither at an EOS nor at a stop string before it has so many tokens. stop: the
    answer ends with the token that completes one of these strings (see specdec.text.stop). grammar: the answer follows
    it ("" = off), llguidance's dialect of Lark (see specdec.text.grammars); where only one token may follow, it is the
    answer's.
    """

    max_new_tokens: int = 64
    temperature: float = 0.0
    seed: int = 0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    grammar: str = ""

    def __post_init__(self) -> None:
        _check("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        _check("temperature", self.temperature, 0.0, 100.0)
        if 0.0 < self.temperature < LEAST_TEMPERATURE:
            raise OptionsError(
                f"temperature = {self.temperature!r} is out of range: choose 0 (greedy) or a number from "
                f"{LEAST_TEMPERATURE} to 100"
            )
        _check("seed", self.seed, 0, MAX_SEED)
        _check("top_k", self.top_k, 0, 1 << 30)
        _check("top_p", self.top_p, 1e-9, 1.0)
        _check("min_p", self.min_p, 0.0, 1.0)
        _check("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        _check("min_new_tokens", self.min_new_tokens, 0, MAX_NEW_TOKENS)
        object.__setattr__(self, "logit_bias", _checked_biases(self.logit_bias))
        object.__setattr__(self, "stop", _checked_stops(self.stop))
        if (
            not isinstance(self.grammar, str)
            or len(self.grammar.encode("utf-8", "replace")) > MAX_GRAMMAR_BYTES
        ):
            raise OptionsError(f"grammar must be text of at most {MAX_GRAMMAR_BYTES} bytes")


def _check(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise OptionsError(f"{name} = {value!r} is out of range: choose a number from {low} to {high}")
    if isinstance(low, int) and not isinstance(value, int):
        raise OptionsError(f"{name} = {value!r} must be a whole number from {low} to {high}")


def _checked_biases(pairs: object) -> tuple[tuple[int, float], ...]:
    if not isinstance(pairs, (tuple, list)) or len(pairs) > MAX_BIASED_TOKENS:
        raise OptionsError(
            f"logit_bias must be a tuple of at most {MAX_BIASED_TOKENS} (token id, bias) pairs"
        )
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise OptionsError(f"logit_bias holds {pair!r}: give (token id, bias) pairs")
        _check("a token id of logit_bias", pair[0], 0, MAX_TOKEN_ID)
        _check("a bias of logit_bias", pair[1], -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS)
    if len({token for token, _ in pairs}) < len(pairs):
        raise OptionsError("logit_bias names a token id twice: give each once")
    return tuple(sorted((token, float(bias)) for token, bias in pairs))


def _checked_stops(stops: object) -> tuple[str, ...]:
    if not isinstance(stops, (tuple, list)) or len(stops) > MAX_STOPS:
        raise OptionsError(f"stop must be a tuple of at most {MAX_STOPS} strings")
    for stop in stops:
        if not isinstance(stop, str) or not _is_text(stop) or not 1 <= len(stop.encode()) <= MAX_STOP_BYTES:
            raise OptionsError(f"stop holds {stop!r:.80}: give whole text of 1 to {MAX_STOP_BYTES} bytes")
    return tuple(stops)


def _is_text(words: str) -> bool:
    """Whether a tokenizer may spell this: halves of characters decode to replacement characters."""
    return not any("\ud800" <= character <= "\udfff" or character == "\ufffd" for character in words)
