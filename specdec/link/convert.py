"""Between what travels and what the rest of the package uses."""

from __future__ import annotations

from specdec.errors import OptionsError, ProtocolError
from specdec.link.wire import Sampling
from specdec.options import GenerationOptions


def sampling_to_wire(options: GenerationOptions) -> Sampling:
    """GenerationOptions as they travel."""
    return Sampling(
        options.max_new_tokens, options.temperature, options.seed, options.top_k, options.top_p, options.min_p
    )


def sampling_from_wire(sampling: Sampling) -> GenerationOptions:
    """Checked options from what travelled. Raises ProtocolError where they are out of range."""
    try:
        return GenerationOptions(
            max_new_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            seed=sampling.seed,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
        )
    except OptionsError as error:
        raise ProtocolError(str(error)) from error
