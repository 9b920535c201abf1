# SPDX-License-Identifier: Apache-2.0
"""The wire contract: every message that may travel between edge and cloud, and how bytes become one of them.

Messages are msgpack arrays whose first element is the message's number. Sizes are checked before anything is
decoded and every field after; nothing in here may raise anything but ProtocolError on foreign bytes.
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
"""Tokens that a reply brings beside those that were judged."""
DIGEST_BYTES = 32

Count = Annotated[int, Meta(ge=0, lt=1 << 31)]
Micros = Annotated[int, Meta(ge=0, lt=1 << 53)]
TokenId = Annotated[int, Meta(ge=0, lt=1 << 31)]
Layer = Annotated[int, Meta(ge=0, lt=1024)]
Weights = Annotated[bytes, Meta(max_length=32)]
Name = Annotated[str, Meta(max_length=256)]
Forced = Annotated[list[TokenId], Meta(max_length=MAX_FORCED)]


class Hello(Struct, frozen=True, array_like=True, tag=1):
    """First message of a client. Its first two elements never change: any two versions understand them.

    token: the one of the Welcome before, where the client connects again; its sessions of then are closed. Of any
    type: another version may mean something else by it.
    """

    version: Count
    client: Name = ""
    token: Any = b""


class Sampling(Struct, frozen=True, array_like=True):
    """GenerationOptions as they travel, by the same names. Ranges are checked where they become options again."""

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
    """An image by its digest (SHA-256), for a verifier that says it keeps some (Allowed.picture_bytes).

    data: the image, to be kept; b"": the verifier has it.
    """

    digest: Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    data: bytes = b""


class Open(Struct, frozen=True, array_like=True, tag=2):
    """Open a session: prompt and images, once. history: verified tokens to replay after a lost link.

    stream: True lets the cloud decode alone and send tokens as they come; False makes it wait for drafts.
    recovery: what happens after a rejection (a specdec.sampling.recovery.Recovery), and how many samples or
    entries of a row travel then. speculate: draft tokens a round of a streaming cloud's own draft model.
    ahead: drafts go on behind one another before their verdicts, so that with rejection sampling one that is
    accepted whole brings no bonus token. front_layers: how many of the target's layers the edge runs.
    pending: a draft whose rejection was under way comes again, so that no token is to be picked before it.
    hints: HintDowns wanted a round, at most; hint_order: 0, the most confident first, or 1, first come, first sent.
    scope: caches of prompts and pictures are shared with sessions of the same scope only, within those of one key; for
    a client that asks for several people. weights: of the target that the answer is of, as Welcome told; a verifier
    with another one refuses with ERROR_TARGET. Empty: any.
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
    hints: Annotated[int, Meta(ge=0, le=64)] = 0
    hint_order: Annotated[int, Meta(ge=0, le=1)] = 0
    scope: Annotated[str, Meta(max_length=64)] = ""
    weights: Weights = b""


class DraftUp(Struct, frozen=True, array_like=True, tag=3):
    """The draft of one round. base: length of the answer it continues. parents: None for a chain.

    epoch: how often a verdict broke the edge's assumptions; a draft of an older epoch counts for nothing.
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
    """The client is done with a session; not answered."""

    session: Count


class Ping(Struct, frozen=True, array_like=True, tag=5):
    """Are you there, and do you still know this session? (session 0: just the first question)"""

    session: Count


class SampledUp(Struct, frozen=True, array_like=True, tag=6):
    """A chain sampled from q, for rejection sampling. q: float32, q(x) of each id, or whole rows one after
    another.

    fix: the token the edge recovered after the rejection before; base counts it. epoch: as in DraftUp.
    """

    session: Count
    round: Count
    base: Count
    ids: Annotated[list[TokenId], Meta(max_length=MAX_DRAFT)]
    q: bytes
    fix: TokenId | None = None
    epoch: Count = 0


class More(Struct, frozen=True, array_like=True, tag=7):
    """What came down after this round's rejection was not enough."""

    session: Count
    round: Count


class HiddenUp(Struct, frozen=True, array_like=True, tag=8):
    """Layer split: what the edge's layers made of the tokens the cloud has not seen; round 0: of the prompt.

    data: hidden states [tokens, hidden_size], in the target's own number type, rows one after another.
    """

    session: Count
    round: Count
    data: bytes


class AloneUp(Struct, frozen=True, array_like=True, tag=9):
    """Go on alone from where the answer is and stream Tokens, until a draft comes. speculate: as in Open.

    round: counted with the drafts, so that both sides notice where it got lost.
    """

    session: Count
    round: Count
    speculate: Annotated[int, Meta(ge=0, le=64)] = 0


class PartUp(Struct, frozen=True, array_like=True, tag=10):
    """A part of a draft that leaves before the draft is complete, for a verifier that takes parts (Welcome.parts).

    part: counts the parts of a round from 0, in the order in which they leave. more: others follow; the draft is judged
    once the last one is there. draft: these tokens, whose base follows the part before; all parts of a round have the
    same session, round, epoch and kind, none has parents, only the first one may have a `fix`. A message of a later
    round drops the parts of the earlier ones.
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
    """What a verifier takes of one client; 0: it does not say.

    message_bytes: of a message. images, image_pixels: of a prompt, all its images together. image_factor, image_least,
    image_most: how images become tokens (specdec.pictures.sizes.PictureRules). draft_nodes: of a draft. sessions: at a
    time. timeout_ms: a session that nothing is said of for this long is forgotten. picture_bytes: of pictures that it
    keeps for this client, which may be named instead of sent again.
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
    """Answer to Hello. server: a number that changes when the server restarts.

    exits: layers with an early exit, which hints come from. drafts: whether the verifier has a draft model of its own.
    token: a secret to show when this client connects again. allowed: what it may ask for. row_us: what forwards of the
    target take by their rows, (rows, microseconds), rows rising, where the verifier has tried; it had no clients then.
    lacks: what its engine cannot do, in LACKS_* words; others count for nothing. draft_us: what a forward of its own
    draft model takes, found likewise; 0: it has none, or does not say. weights: equal for verifiers whose targets have
    the same weights, in the same number types (specdec.models.digest); empty: it does not say. parts: how many parts a
    draft may come in (PartUp); 0: drafts come whole.
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
    """The prompt is in. token: the answer's next token, None where a draft is pending. limit: how many tokens the
    answer may have. forced: what a grammar lets follow `token`, and nothing else.
    """

    session: Count
    token: TokenId | None
    limit: Count
    verify_us: Micros
    queue_us: Micros
    forced: Forced = []


class VerdictDown(Struct, frozen=True, array_like=True, tag=35):
    """Verdict on the drafts up to a round's. last: one more than the last accepted node's index (a chain: how many).

    Drafts that waited together are judged together, as one chain. token: the target's own next token; None
    where a draft was accepted whole and another follows (Open.ahead).
    verify_us: the forward; queue_us: the rest of its time in the cloud. batch: sessions that shared the forward.
    forced: as in Opened.
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
    """What an early exit expects of the verdict on a round that is being worked on. It decides nothing.

    last: as in VerdictDown. token: the exit's next token. confidence: its probability of both together. layer: the
    exit's. at_us: when the hint was handed over for sending, counted from the start of the forward.
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

    ids: uint32, p: float32, token ids and their probabilities under the target; no ids: the row in full.
    samples: this many of them, the last ones, are i.i.d. samples of p outside the entries before them.
    tail: probability of everything that is not listed; 0 where nothing else is possible.
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
    """Streamed tokens of a cloud that decodes alone. base: length of the answer before them.

    drafted: how many its own draft model had proposed. verify_us: all forwards behind these tokens. batch: as in
    VerdictDown. draft_us: of verify_us, what the draft model took for these drafts; 0: none, or more than that, as when
    it first takes in the prompt.
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
    """Answer to Ping. received, answered: highest round of the session that came in and that was answered.

    streamed: how long the answer was when the last Tokens left.
    """

    session: Count
    received: Count
    answered: Count
    streamed: Count = 0


class ErrorDown(Struct, frozen=True, array_like=True, tag=38):
    """Something was refused. session 0: not about a session. code: one of the ERROR_* words.

    After "busy" and "too_large" the session is as it was before, if it was open; the message says what is allowed.
    missing: after "pictures", which images of an Open were named and are not there, counted from 0.
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
    """A message that is longer than its kind may be."""


def encode(message: Up | Down) -> bytes:
    """A message as the bytes that travel."""
    return _encoder.encode(message)


def decode_up(data: bytes, max_bytes: int = MAX_UP_BYTES) -> Up:
    """Bytes from a client -> message. Raises ProtocolError for the rest; what is too large is not even decoded
    (MessageTooLarge).
    """
    _check_size(data, _UP_LIMITS, max_bytes)
    message: Up = decoded(_up_decoder, data)
    return message


def decode_down(data: bytes) -> Down:
    """Bytes from a server -> message. Raises ProtocolError for anything else."""
    _check_size(data, _DOWN_LIMITS, MAX_DOWN_BYTES)
    message: Down = decoded(_down_decoder, data)
    return message


def decoded(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    """What bytes of others hold. Raises ProtocolError."""
    try:
        return decoder.decode(data)
    except DECODE_ERRORS as error:
        raise ProtocolError(f"a message cannot be understood ({first_line(error)})") from error


def _check_size(data: bytes, limits: dict[int, int], max_bytes: int) -> None:
    """A message is an array that begins with its number, right behind the array's head of one byte, or of three where
    it has more than 15 fields; each number has its own size limit.
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
