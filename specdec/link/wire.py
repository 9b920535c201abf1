# SPDX-License-Identifier: Apache-2.0
"""The wire contract: all messages between edge and cloud, and their decoding.

Messages are msgpack arrays whose first element is the message's number. Sizes are checked before decoding, every field
after it. Foreign bytes must never raise anything but ProtocolError.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from specdec.errors import DECODE_ERRORS, ProtocolError, first_line
from specdec.options import MAX_BIASED_TOKENS, MAX_GRAMMAR_BYTES

PROTOCOL_VERSION = 5

MAX_IDS = 1 << 20
MAX_DRAFT = 4096
MAX_IMAGES = 64
TOKEN_BYTES = 16
MAX_FORCED = 64
"""Most forced tokens in a reply."""
MAX_HINTS = 64
"""Most hints per round that an edge may ask for."""
DIGEST_BYTES = 32

Count = Annotated[int, Meta(ge=0, lt=1 << 31)]
Micros = Annotated[int, Meta(ge=0, lt=1 << 53)]
TokenId = Annotated[int, Meta(ge=0, lt=1 << 31)]
Layer = Annotated[int, Meta(ge=0, lt=1024)]
Weights = Annotated[bytes, Meta(max_length=32)]
Name = Annotated[str, Meta(max_length=256)]
Forced = Annotated[list[TokenId], Meta(max_length=MAX_FORCED)]


class Hello(Struct, frozen=True, array_like=True, tag=1):
    """First message of a client. Its first two elements never change, so that any two versions understand them.

    token: from the previous Welcome, if the client reconnects; its earlier sessions are then closed. It may have any
    type, because another version may use it differently.
    """

    version: Count
    client: Name = ""
    token: Any = b""


class Sampling(Struct, frozen=True, array_like=True):
    """GenerationOptions on the wire, with the same names. Ranges are checked on conversion to GenerationOptions."""

    max_new_tokens: Count
    temperature: float
    seed: Annotated[int, Meta(ge=0)]
    top_k: Count
    top_p: float
    min_p: float
    repetition_penalty: float = 1.0
    logit_bias: Annotated[list[tuple[TokenId, float]], Meta(max_length=MAX_BIASED_TOKENS)] = []
    min_new_tokens: Count = 0
    grammar: Annotated[str, Meta(max_length=MAX_GRAMMAR_BYTES)] = ""


class Picture(Struct, frozen=True, array_like=True):
    """An image named by its digest (SHA-256), for a verifier that keeps pictures (Allowed.picture_bytes).

    data: the encoded image, to be kept; b"": the verifier has it.
    """

    digest: Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    data: bytes = b""


class Open(Struct, frozen=True, array_like=True, tag=2):
    """Open a session.

    Attributes:
        session: Number of the session.
        stream: True: the cloud decodes alone and sends tokens as they come. False: it waits for drafts.
        sampling: Generation options.
        ids: Prompt token ids.
        images: Images of the prompt.
        history: Verified tokens to replay after a lost link.
        recovery: What happens after a rejection (specdec.sampling.recoveries.Recovery).
        recovery_size: Samples or entries of a row that are then sent.
        speculate: Draft tokens per round of a streaming cloud's own draft model.
        ahead: Drafts may continue earlier drafts without a verdict, so that with rejection sampling a fully accepted
            draft yields no bonus token.
        front_layers: Layers of the target that the edge runs.
        pending: A draft whose rejection was sent in part will be sent again, so no token may be picked before it.
        hints: Most HintDowns per round.
        hint_order: 0: most confident first; 1: first come, first sent.
        scope: Caches of prompts and pictures are shared only among sessions with this scope and key; for a client that
            serves several users.
        weights: Digest of the target's weights from Welcome. A verifier with other weights refuses with ERROR_TARGET.
            Empty: any.
    """

    session: Count
    stream: bool
    sampling: Sampling
    ids: Annotated[list[TokenId], Meta(max_length=MAX_IDS)]
    images: Annotated[list[bytes | Picture], Meta(max_length=MAX_IMAGES)] = []
    history: Annotated[list[TokenId], Meta(max_length=MAX_IDS)] = []
    recovery: Annotated[int, Meta(ge=0, le=5)] = 0
    recovery_size: Annotated[int, Meta(ge=0, le=65_536)] = 0
    speculate: Annotated[int, Meta(ge=0, le=64)] = 0
    ahead: bool = False
    front_layers: Annotated[int, Meta(ge=0, le=1024)] = 0
    pending: bool = False
    hints: Annotated[int, Meta(ge=0, le=MAX_HINTS)] = 0
    hint_order: Annotated[int, Meta(ge=0, le=1)] = 0
    scope: Annotated[str, Meta(max_length=64)] = ""
    weights: Weights = b""


class DraftUp(Struct, frozen=True, array_like=True, tag=3):
    """The draft of one round. base: length of the answer that it continues. parents: None for a chain.

    epoch: how often a verdict broke the edge's assumptions; drafts of an older epoch are ignored.
    """

    session: Count
    round: Count
    base: Count
    ids: Annotated[list[TokenId], Meta(max_length=MAX_DRAFT)]
    parents: Annotated[list[Annotated[int, Meta(ge=-1, lt=MAX_DRAFT)]], Meta(max_length=MAX_DRAFT)] | None = (
        None
    )
    epoch: Count = 0


class Close(Struct, frozen=True, array_like=True, tag=4):
    """The client is done with a session; there is no reply."""

    session: Count


class Ping(Struct, frozen=True, array_like=True, tag=5):
    """Asks whether the verifier is alive and still has this session; session 0 asks only the first."""

    session: Count


class SampledUp(Struct, frozen=True, array_like=True, tag=6):
    """A chain sampled from q, for rejection sampling. q: float32, either q(x) of each id or all rows in order.

    fix: the token that the edge recovered after the previous rejection; `base` includes it. epoch: as in DraftUp.
    """

    session: Count
    round: Count
    base: Count
    ids: Annotated[list[TokenId], Meta(max_length=MAX_DRAFT)]
    q: bytes
    fix: TokenId | None = None
    epoch: Count = 0


class More(Struct, frozen=True, array_like=True, tag=7):
    """Requests more of the target's row after this round's rejection."""

    session: Count
    round: Count


class HiddenUp(Struct, frozen=True, array_like=True, tag=8):
    """Layer split: hidden states of the tokens that the cloud has not seen; round 0: those of the prompt.

    data: hidden states [tokens, hidden_size] in row order, in the target's number type.
    """

    session: Count
    round: Count
    data: bytes


class AloneUp(Struct, frozen=True, array_like=True, tag=9):
    """Continue alone from the end of the answer and stream Tokens, until a draft comes. speculate: as in Open.

    round: counted like those of drafts, so that both sides notice if this message is lost.
    """

    session: Count
    round: Count
    speculate: Annotated[int, Meta(ge=0, le=64)] = 0


class PartUp(Struct, frozen=True, array_like=True, tag=10):
    """A part of a draft, sent before the draft is complete, for a verifier that accepts parts (Welcome.parts).

    All parts of a round have the same session, round, epoch and kind. None has parents, and only the first may have a
    `fix`. A message of a later round discards the parts of earlier rounds.

    part: number within the round, from 0 in the order sent. more: further parts follow; the draft is judged when the
    last one has arrived. draft: the tokens of this part; its base continues the previous part.
    """

    part: Count
    more: bool
    draft: DraftUp | SampledUp

    @property
    def session(self) -> int:
        """The draft's session."""
        return self.draft.session

    @property
    def round(self) -> int:
        """The draft's round."""
        return self.draft.round


class Allowed(Struct, frozen=True, array_like=True):
    """A verifier's limits for one client; 0: not reported.

    Attributes:
        message_bytes: Most bytes per message.
        images: Most images per prompt.
        image_pixels: Most pixels of all images of a prompt together.
        image_factor: How images become tokens, with `image_least` and `image_most`
            (specdec.pictures.sizes.PictureRules).
        image_least: See `image_factor`.
        image_most: See `image_factor`.
        draft_nodes: Most nodes per draft.
        sessions: Most sessions at a time.
        timeout_ms: A session without messages for this long is dropped.
        picture_bytes: Bytes of pictures kept for this client, which may be sent by name.
    """

    message_bytes: Count = 0
    images: Count = 0
    image_pixels: Count = 0
    image_factor: Count = 0
    image_least: Count = 0
    image_most: Count = 0
    draft_nodes: Count = 0
    sessions: Count = 0
    timeout_ms: Count = 0
    picture_bytes: Annotated[int, Meta(ge=0)] = 0


class Welcome(Struct, frozen=True, array_like=True, tag=33):
    """Reply to Hello.

    Attributes:
        version: The protocol version.
        model: Name of the target.
        vocab_size: Size of its vocabulary.
        vocabulary: Fingerprint of its vocabulary.
        eos_ids: Its end-of-sequence ids.
        context_limit: Most tokens of prompt and answer together.
        server: A number that changes when the server restarts.
        exits: Layers with an early exit, which send hints.
        drafts: Whether the verifier has its own draft model.
        token: A secret to present when this client reconnects.
        allowed: Limits for this client.
        row_us: Times of the target's forward passes, measured without clients: (rows, microseconds), rows ascending.
        lacks: What the engine cannot do, in LACKS_* words; unknown words are ignored.
        draft_us: Time of a forward pass of its own draft model, measured likewise; 0: no such model, or not reported.
        weights: Equal for targets with the same weights in the same number types (specdec.models.digest); empty: not
            reported.
        parts: Most parts per draft (PartUp); 0: drafts must be sent whole.
    """

    version: Count
    model: Name = ""
    vocab_size: Count = 0
    vocabulary: Annotated[bytes, Meta(max_length=32)] = b""
    eos_ids: Annotated[list[TokenId], Meta(max_length=64)] = []
    context_limit: Count = 0
    server: Annotated[int, Meta(ge=0)] = 0
    exits: Annotated[list[Layer], Meta(max_length=1024)] = []
    drafts: bool = False
    token: Annotated[bytes, Meta(max_length=TOKEN_BYTES)] = b""
    allowed: Allowed = Allowed()
    row_us: Annotated[list[tuple[Count, Micros]], Meta(max_length=64)] = []
    lacks: Annotated[list[Name], Meta(max_length=64)] = []
    draft_us: Micros = 0
    weights: Weights = b""
    parts: Count = 0


class Opened(Struct, frozen=True, array_like=True, tag=34):
    """The prompt is computed. token: the answer's next token; None if a draft is pending. limit: most tokens of the
    answer. forced: tokens after `token` that a grammar leaves no choice about.
    """

    session: Count
    token: TokenId | None
    limit: Count
    verify_us: Micros
    queue_us: Micros
    forced: Forced = []


class VerdictDown(Struct, frozen=True, array_like=True, tag=35):
    """Verdict on all drafts up to `round`. Drafts that waited together are judged together, as one chain.

    last: index of the last accepted node + 1; for a chain, the number of accepted tokens. token: the target's next
    token; None if a draft was fully accepted and another follows (Open.ahead). verify_us: the forward pass. queue_us:
    the rest of the time in the cloud. batch: sessions that shared the forward pass. forced: as in Opened.
    """

    session: Count
    round: Count
    last: Count
    token: TokenId | None
    verify_us: Micros
    queue_us: Micros
    batch: Count = 1
    forced: Forced = []


class HintDown(Struct, frozen=True, array_like=True, tag=40):
    """An early exit's prediction of the verdict on a round in progress. It decides nothing.

    last: as in VerdictDown. token: the exit's next token. confidence: its probability of both together. layer: the
    exit's layer. at_us: when the hint was queued for sending, after the start of the forward pass.
    """

    session: Count
    round: Count
    last: Count
    token: TokenId
    confidence: Annotated[float, Meta(ge=0, le=1)]
    layer: Layer
    at_us: Micros


class RowDown(Struct, frozen=True, array_like=True, tag=39):
    """A rejection that the edge recovers from. last: accepted tokens of the chain.

    ids (uint32), p (float32): token ids and their probabilities under the target; without ids, p is the full row.
    samples: how many of the last entries are i.i.d. samples of p outside the entries before them. tail: probability of
    all tokens that are not listed; 0 if none of them is possible.
    """

    session: Count
    round: Count
    last: Count
    ids: bytes
    p: bytes
    samples: Count
    tail: Annotated[float, Meta(ge=0, le=1)]
    verify_us: Micros
    queue_us: Micros
    batch: Count = 1


class Tokens(Struct, frozen=True, array_like=True, tag=36):
    """Tokens streamed by a cloud that decodes alone. base: length of the answer before them.

    drafted: how many tokens its own draft model had proposed. verify_us: all forward passes for these tokens. batch: as
    in VerdictDown. draft_us: part of verify_us that the draft model took for these drafts; 0: it did not draft, or it
    did other work too, such as its prefill.
    """

    session: Count
    base: Count
    ids: Annotated[list[TokenId], Meta(max_length=MAX_DRAFT)]
    verify_us: Micros
    queue_us: Micros
    drafted: Count = 0
    batch: Count = 1
    draft_us: Micros = 0


class Pong(Struct, frozen=True, array_like=True, tag=37):
    """Reply to Ping. received, answered: highest round of the session received, and replied to.

    streamed: length of the answer when the last Tokens were sent.
    """

    session: Count
    received: Count
    answered: Count
    streamed: Count = 0


class ErrorDown(Struct, frozen=True, array_like=True, tag=38):
    """A request was refused. session 0: not about a session. code: one of the ERROR_* words.

    After "busy" and "too_large" an open session is unchanged, and the message names the limit. missing: for "pictures",
    the indices, from 0, of images of an Open that were sent by name but are not there.
    """

    session: Count
    code: Name
    message: Annotated[str, Meta(max_length=2000)]
    missing: Annotated[list[Annotated[int, Meta(ge=0, lt=MAX_IMAGES)]], Meta(max_length=MAX_IMAGES)] = []


ERROR_MALFORMED = "malformed"
ERROR_VERSION = "version"
ERROR_UNKNOWN_SESSION = "unknown_session"
ERROR_BUSY = "busy"
ERROR_TOO_LARGE = "too_large"
ERROR_REFUSED = "refused"
ERROR_INTERNAL = "internal"
ERROR_SHUTDOWN = "shutdown"
ERROR_KEY = "key"
ERROR_PICTURES = "pictures"
ERROR_TARGET = "target"

LACKS_TREES = "trees"
LACKS_SPLIT = "split"
LACKS_SAMPLED = "sampled"
LACKS_SEVERAL = "several"
LACKS_GRAMMARS = "grammars"

Up = Hello | Open | DraftUp | Close | Ping | SampledUp | More | HiddenUp | AloneUp | PartUp
Down = Welcome | Opened | VerdictDown | Tokens | Pong | ErrorDown | RowDown | HintDown

_UP_LIMITS = {1: 1024, 2: 64 << 20, 3: 64 << 10, 4: 64, 5: 64, 6: 64 << 20, 7: 64, 8: 256 << 20, 9: 64, 10: 64 << 20}
_DOWN_LIMITS = {33: 8192, 34: 512, 35: 512, 36: 64 << 10, 37: 64, 38: 8192, 39: 4 << 20, 40: 64}
MAX_UP_BYTES = max(_UP_LIMITS.values())
MAX_DOWN_BYTES = max(_DOWN_LIMITS.values())

_encoder = msgspec.msgpack.Encoder()
_up_decoder = msgspec.msgpack.Decoder(Up)
_down_decoder = msgspec.msgpack.Decoder(Down)


class MessageTooLarge(ProtocolError):
    """A message longer than its kind allows."""


def encode(message: Up | Down) -> bytes:
    """Encode a message."""
    return _encoder.encode(message)


def decode_up(data: bytes, max_bytes: int = MAX_UP_BYTES) -> Up:
    """Decode a message from a client. Raises ProtocolError for anything else; a message that is too large is not even
    decoded (MessageTooLarge).
    """
    _check_size(data, _UP_LIMITS, max_bytes)
    message: Up = decoded(_up_decoder, data)
    return message


def decode_down(data: bytes) -> Down:
    """Decode a message from a server. Raises ProtocolError for anything else."""
    _check_size(data, _DOWN_LIMITS, MAX_DOWN_BYTES)
    message: Down = decoded(_down_decoder, data)
    return message


def decoded(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    """Decode foreign bytes. Raises ProtocolError."""
    try:
        return decoder.decode(data)
    except DECODE_ERRORS as error:
        raise ProtocolError(f"a message cannot be understood ({first_line(error)})") from error


def _check_size(data: bytes, limits: dict[int, int], max_bytes: int) -> None:
    """Raise unless the message has a known number and is within that number's size limit.

    The number follows the msgpack array head, which has one byte, or three bytes for more than 15 fields.
    """
    if len(data) < 2:
        raise ProtocolError(f"a message of {len(data)} bytes is too short")
    head = 1 if data[0] & 0xF0 == 0x90 else 3 if data[0] == 0xDC else len(data)
    number = data[head] if head < len(data) else -1
    if number not in limits:
        raise ProtocolError("a message is not of this protocol")
    limit = min(limits[number], max_bytes)
    if len(data) > limit:
        raise MessageTooLarge(f"a message of {len(data)} bytes exceeds the limit of {limit} of its kind")
