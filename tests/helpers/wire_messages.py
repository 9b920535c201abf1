"""One message and more of each kind that travels."""

from __future__ import annotations

from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.options import GenerationOptions

SAMPLING = sampling_to_wire(GenerationOptions(64, 0.8, seed=2**62, top_k=5, top_p=0.9, min_p=0.1))
UP: list[wire.Up] = [
    wire.Hello(1, "edge"),
    wire.Hello(4, "edge", b"0123456789abcdef"),
    wire.Open(1, False, SAMPLING, [1, 2, 3], [b"jpeg"], [9]),
    wire.DraftUp(1, 2, 3, [4, 5, 6], [-1, 0, 0]),
    wire.DraftUp(1, 2, 3, []),
    wire.Close(7),
    wire.Ping(7),
    wire.SampledUp(1, 2, 3, [4, 5], b"12345678", 9, 2),
    wire.SampledUp(1, 2, 3, [], b""),
    wire.More(1, 2),
    wire.HiddenUp(1, 0, b"\0" * 64),
    wire.AloneUp(1, 4),
    wire.Open(1, False, SAMPLING, [1], hints=8, hint_order=1),
    wire.PartUp(0, True, wire.SampledUp(1, 2, 3, [4, 5], b"12345678", 9, 2)),
    wire.PartUp(1, False, wire.DraftUp(1, 2, 5, [6], None, 2)),
]
DOWN: list[wire.Down] = [
    wire.Welcome(1, "model", 264, b"12345678", [256, 257], 512, 99),
    wire.Opened(1, 5, 64, 1000, 10),
    wire.VerdictDown(1, 2, 3, 4, 5, 6),
    wire.VerdictDown(1, 2, 3, None, 5, 6),
    wire.RowDown(1, 2, 3, b"1234", b"5678", 1, 0.25, 5, 6),
    wire.Tokens(1, 2, [3], 4, 5),
    wire.Tokens(1, 2, [3, 4], 900, 5, 4, 2, draft_us=300),
    wire.Welcome(5, "model", drafts=True, draft_us=1_250),
    wire.Welcome(5, "model", weights=b"0123456789abcdef", parts=16),
    wire.Pong(1, 2, 3),
    wire.ErrorDown(1, wire.ERROR_BUSY, "full"),
    wire.HintDown(1, 2, 3, 4, 0.75, 5, 600),
    wire.Welcome(3, "model", exits=[0, 3, 1023], drafts=True),
    wire.Welcome(5, "model", row_us=[(1, 17_940), (4, 24_630), (32, 96_940)]),
    wire.Welcome(5, "model", lacks=[wire.LACKS_TREES, wire.LACKS_SPLIT, "what nobody knows yet"]),
    wire.Welcome(4, "model", token=b"0123456789abcdef", allowed=wire.Allowed(9, 8, 7, 28, 5, 4, 3, 2, 1)),
]
