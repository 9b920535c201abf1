"""What a caller may ask of one answer; checked once, here, so that nothing downstream has to."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.errors import OptionsError

MAX_NEW_TOKENS = 1 << 20
MAX_SEED = (1 << 63) - 1


@dataclass(frozen=True)
class GenerationOptions:
    """Options of one answer, the same on both sides of the link.

    max_new_tokens counts the end-of-sequence token like Hugging Face `generate` does.
    temperature 0 is greedy decoding; above 0 the shared-noise sampler picks, seeded by `seed`
    (TRAPS 17a), after top_k (0 = off), top_p (1 = off) and min_p (0 = off).
    """

    max_new_tokens: int = 64
    temperature: float = 0.0
    seed: int = 0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        _check("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        _check("temperature", self.temperature, 0.0, 100.0)
        _check("seed", self.seed, 0, MAX_SEED)
        _check("top_k", self.top_k, 0, 1 << 30)
        _check("top_p", self.top_p, 1e-9, 1.0)
        _check("min_p", self.min_p, 0.0, 1.0)


def _check(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise OptionsError(f"{name} = {value!r} is out of range: choose a number from {low} to {high}")
    if isinstance(low, int) and not isinstance(value, int):
        raise OptionsError(f"{name} = {value!r} must be a whole number from {low} to {high}")
