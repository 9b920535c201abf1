# SPDX-License-Identifier: Apache-2.0
"""Conversions between wire messages and the package's own types."""

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
    """GenerationOptions for the wire. Stop strings are left out: the edge applies them and closes the session."""
    told = {name: getattr(options, name) for name in Sampling.__struct_fields__}
    return Sampling(**told | {"logit_bias": list(options.logit_bias)})


def sampling_from_wire(sampling: Sampling) -> GenerationOptions:
    """Checked options from the wire. Raises ProtocolError if a value is out of range."""
    try:
        return GenerationOptions(**msgspec.structs.asdict(sampling))
    except OptionsError as error:
        raise ProtocolError(str(error)) from error


def prompt_from_wire(message: Open) -> Prompt:
    """The prompt of an opening message whose pictures are all present."""
    return Prompt(tuple(message.ids), pictures_of(message))


def floats_to_wire(values: Tensor) -> bytes:
    """Probabilities of any shape as little-endian float32."""
    return values.detach().cpu().to(torch.float32).contiguous().numpy().astype("<f4", copy=False).tobytes()


def floats_from_wire(data: bytes) -> Tensor:
    """float32 [n] from little-endian bytes. Raises ProtocolError unless they are probabilities."""
    if len(data) % 4:
        raise ProtocolError(f"{len(data)} bytes are not a whole number of float32 values")
    values = torch.from_numpy(np.frombuffer(data, dtype="<f4").astype(np.float32))
    if values.numel() and not bool(((values >= 0) & (values <= 1.001)).all()):
        raise ProtocolError("probabilities are outside 0 to 1")
    return values


def q_from_wire(data: bytes, drafted: int, vocab_size: int) -> Tensor:
    """q of a draft: [drafted], or [drafted, vocab_size] if whole rows were sent. Raises ProtocolError."""
    values = floats_from_wire(data)
    if drafted and values.shape[0] == drafted * vocab_size:
        return values.view(drafted, vocab_size)
    if drafted == 0 and not data:
        return values.view(0, vocab_size)
    return values


def row_to_wire(
    session: int, round_: int, accepted: int, row: TargetRow, verify_us: int, queue_us: int, batch: int = 1
) -> RowDown:
    """The message from which the edge recovers after a rejection."""
    ids = b"" if row.tokens is None else np.asarray(row.tokens, dtype="<u4").tobytes()
    p = floats_to_wire(row.p)
    return RowDown(session, round_, accepted, ids, p, row.samples, row.tail, verify_us, queue_us, batch)


def row_from_wire(message: RowDown) -> TargetRow:
    """The target's row from a RowDown. Raises ProtocolError if the bytes are not a row."""
    p = floats_from_wire(message.p)
    if not message.ids:
        return TargetRow(p)
    if len(message.ids) != len(message.p):
        raise ProtocolError("a row has different numbers of ids and probabilities")
    tokens = np.frombuffer(message.ids, dtype="<u4").astype(np.int64).tolist()
    return TargetRow(p, tokens, message.samples, message.tail)
