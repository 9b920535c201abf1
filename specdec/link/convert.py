# SPDX-License-Identifier: Apache-2.0
"""Between what travels and what the rest of the package uses."""

from __future__ import annotations

import msgspec
import numpy as np
import torch
from torch import Tensor

from specdec.errors import OptionsError, ProtocolError
from specdec.link.pictures import pictures_of
from specdec.link.wire import Open, RowDown, Sampling
from specdec.models.prompt import Prompt
from specdec.options import GenerationOptions
from specdec.sampling.recovery import TargetRow


def sampling_to_wire(options: GenerationOptions) -> Sampling:
    """GenerationOptions as they travel. Stop strings stay: who gives the answer out ends it, and says so."""
    told = {name: getattr(options, name) for name in Sampling.__struct_fields__}
    return Sampling(**told | {"logit_bias": list(options.logit_bias)})


def sampling_from_wire(sampling: Sampling) -> GenerationOptions:
    """Checked options from what travelled. Raises ProtocolError where they are out of range."""
    try:
        return GenerationOptions(**msgspec.structs.asdict(sampling))
    except OptionsError as error:
        raise ProtocolError(str(error)) from error


def prompt_from_wire(message: Open) -> Prompt:
    """The prompt that a session opens with, all its pictures there."""
    return Prompt(tuple(message.ids), pictures_of(message))


def floats_to_wire(values: Tensor) -> bytes:
    """Probabilities of any shape as little-endian float32."""
    return values.detach().cpu().to(torch.float32).contiguous().numpy().astype("<f4", copy=False).tobytes()


def floats_from_wire(data: bytes) -> Tensor:
    """float32 [n] from little-endian bytes. Raises ProtocolError unless they are probabilities."""
    if len(data) % 4:
        raise ProtocolError(f"{len(data)} bytes are not whole number of float32")
    values = torch.from_numpy(np.frombuffer(data, dtype="<f4").astype(np.float32))
    if values.numel() and not bool(((values >= 0) & (values <= 1.001)).all()):
        raise ProtocolError("probabilities are outside 0 to 1")
    return values


def q_from_wire(data: bytes, drafted: int, vocab_size: int) -> Tensor:
    """q of a draft: [drafted], or [drafted, vocab_size] where whole rows came. Raises ProtocolError."""
    values = floats_from_wire(data)
    if drafted and values.shape[0] == drafted * vocab_size:
        return values.view(drafted, vocab_size)
    if drafted == 0 and not data:
        return values.view(0, vocab_size)
    return values


def row_to_wire(
    session: int, round_: int, accepted: int, row: TargetRow, verify_us: int, queue_us: int, batch: int = 1
) -> RowDown:
    """What the edge needs to recover from a rejection, as it travels."""
    ids = b"" if row.tokens is None else np.asarray(row.tokens, dtype="<u4").tobytes()
    p = floats_to_wire(row.p)
    return RowDown(session, round_, accepted, ids, p, row.samples, row.tail, verify_us, queue_us, batch)


def row_from_wire(message: RowDown) -> TargetRow:
    """The same on the edge. Raises ProtocolError for bytes that are not a row."""
    p = floats_from_wire(message.p)
    if not message.ids:
        return TargetRow(p)
    if len(message.ids) != len(message.p):
        raise ProtocolError("a row has not as many ids as probabilities")
    tokens = np.frombuffer(message.ids, dtype="<u4").astype(np.int64).tolist()
    return TargetRow(p, tokens, message.samples, message.tail)
