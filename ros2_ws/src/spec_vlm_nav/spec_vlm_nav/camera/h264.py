# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
A minimal H.264 parser that detects lost references, which a decoder conceals.

The standard is ITU-T H.264, Annex B. Its terms: a NAL unit is one piece after a start code. An
access unit holds the NAL units of one picture. SPS and PPS are parameter sets. A key picture needs
no earlier picture. Parsers return None for invalid input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
import re

SLICE, IDR, SEI, SPS, PPS, DELIMITER = 1, 5, 6, 7, 8, 9
_START = re.compile(rb"\x00\x00\x01")
_HIGH_PROFILES = frozenset({100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135})
_I_SLICES = frozenset({2, 7})
_MOST_SPS, _MOST_PPS, _MOST_BITS = 31, 255, 16  # the standard's bounds
_HEAD = 64  # bytes at the start of a NAL unit that hold the fields read here
START_CODE = b"\x00\x00\x00\x01"


class _Bits:
    """Reads the bits of a NAL unit's payload; raises ValueError at its end."""

    def __init__(self, payload: bytes) -> None:
        # Remove emulation prevention bytes: encoders insert a 3 after two zeros.
        plain = payload.replace(b"\x00\x00\x03", b"\x00\x00")
        self._value, self._left = int.from_bytes(plain, "big"), 8 * len(plain)

    def take(self, count: int) -> int:
        """Return the next bits as an unsigned number."""
        if count > self._left:
            raise ValueError("out of bits")
        self._left -= count
        return (self._value >> self._left) & ((1 << count) - 1)

    def ue(self) -> int:
        """Return the next unsigned Exp-Golomb code."""
        zeros = 0
        while self.take(1) == 0:
            zeros += 1
            if zeros > 31:
                raise ValueError("no Exp-Golomb code")
        return (1 << zeros) - 1 + self.take(zeros)

    def se(self) -> int:
        """Return the next signed Exp-Golomb code."""
        code = self.ue()
        return (code + 1) // 2 if code % 2 else -(code // 2)


@dataclass(frozen=True)
class Sps:
    """The used fields of a sequence parameter set."""

    number: int
    frame_number_bits: int
    gaps_allowed: bool
    separate_planes: bool
    nal: bytes


@dataclass(frozen=True)
class Pps:
    """The used fields of a picture parameter set; `sps`: the SPS it refers to."""

    number: int
    sps: int
    nal: bytes


@dataclass(frozen=True)
class SliceHead:
    """The beginning of a slice header."""

    first: bool
    is_intra: bool
    pps: int
    frame_number: int
    is_reference: bool
    is_idr: bool


@dataclass(frozen=True)
class AccessUnit:
    """One picture, or parameter sets alone (`has_picture` false); `nals` without start codes."""

    nals: tuple[bytes, ...]

    @property
    def has_picture(self) -> bool:
        """Whether the unit contains a picture."""
        return any(kind(nal) in (SLICE, IDR) for nal in self.nals)

    @property
    def data(self) -> bytes:
        """Return the unit as Annex B bytes."""
        return b"".join(START_CODE + nal for nal in self.nals)


def kind(nal: bytes) -> int:
    """Return the type of a NAL unit."""
    return nal[0] & 0x1F


def split_nals(data: bytes) -> list[bytes]:
    """
    Return the NAL units of Annex B bytes; none if there is no start code.

    Bytes before the first start code are dropped.
    """
    marks = [match.end() for match in _START.finditer(data)]
    ends = [mark - 3 for mark in marks[1:]] + [len(data)][: len(marks)]
    nals = (data[a:b].rstrip(b"\x00") for a, b in zip(marks, ends, strict=True))
    return [nal for nal in nals if nal]


def access_units(data: bytes) -> Iterator[AccessUnit]:
    """Group NAL units into pictures; parameter sets go with the picture that follows them."""
    unit: list[bytes] = []
    has_slice = False
    for nal in split_nals(data):
        number = kind(nal)
        # first_mb_in_slice is 0 (the Exp-Golomb code 1) only in a picture's first slice.
        first_slice = number in (SLICE, IDR) and len(nal) > 1 and bool(nal[1] & 0x80)
        if has_slice and (first_slice or number in (SEI, SPS, PPS, DELIMITER)):
            yield AccessUnit(tuple(unit))
            unit, has_slice = [], False
        unit.append(nal)
        has_slice |= number in (SLICE, IDR)
    if unit:
        yield AccessUnit(tuple(unit))


def read_sps(nal: bytes) -> Sps | None:
    """Read a sequence parameter set as far as needed."""
    bits = _Bits(nal[1:])
    try:
        profile = bits.take(8)
        bits.take(16)
        number, separate = bits.ue(), False
        if profile in _HIGH_PROFILES:
            chroma = bits.ue()
            separate = chroma == 3 and bool(bits.take(1))
            bits.ue()
            bits.ue()
            bits.take(1)
            if bits.take(1):
                for i in range(12 if chroma == 3 else 8):
                    if bits.take(1):
                        _skip_scaling_list(bits, 16 if i < 6 else 64)
        frame_number_bits = bits.ue() + 4
        order = bits.ue()
        if order == 0:
            bits.ue()
        elif order == 1:
            bits.take(1)
            bits.se()
            bits.se()
            for _ in range(min(bits.ue(), 255)):
                bits.se()
        bits.ue()
        gaps = bool(bits.take(1))
    except ValueError:
        return None
    if number > _MOST_SPS or frame_number_bits > _MOST_BITS:
        return None
    return Sps(number, frame_number_bits, gaps, separate, nal)


def _skip_scaling_list(bits: _Bits, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + bits.se()) % 256
        last = following or last


def read_pps(nal: bytes) -> Pps | None:
    """Read a picture parameter set as far as needed."""
    bits = _Bits(nal[1:_HEAD])
    try:
        number, sps = bits.ue(), bits.ue()
    except ValueError:
        return None
    return Pps(number, sps, nal) if number <= _MOST_PPS else None


class Numbering:
    """Follows the frame numbers of a stream, and detects pictures with missing references."""

    def __init__(self) -> None:
        self._sps: dict[int, Sps] = {}
        self._pps: dict[int, Pps] = {}
        self._last: int | None = None

    def read_slice(self, nal: bytes) -> SliceHead | None:
        """Return the head of a slice. None if it cannot be parsed or its parameter sets were not received."""
        bits = _Bits(nal[1:_HEAD])
        try:
            first, slice_type, pps = bits.ue(), bits.ue(), bits.ue()
            sps = self._sps_of(pps)
            if sps is None:
                return None
            if sps.separate_planes:
                bits.take(2)
            number = bits.take(sps.frame_number_bits)
        except ValueError:
            return None
        is_intra, is_reference = slice_type in _I_SLICES, bool(nal[0] & 0x60)
        return SliceHead(first == 0, is_intra, pps, number, is_reference, kind(nal) == IDR)

    def learn(self, unit: AccessUnit) -> None:
        """Record parameter sets."""
        for nal in unit.nals:
            if kind(nal) == SPS and (sps := read_sps(nal)) is not None:
                self._sps[sps.number] = sps
            elif kind(nal) == PPS and (pps := read_pps(nal)) is not None:
                self._pps[pps.number] = pps

    def follow(self, head: SliceHead) -> bool:
        """Record the next picture. Returns whether a picture that it may refer to is missing before it."""
        sps = self._sps_of(head.pps)
        assert sps is not None  # read_slice needed it
        last = 0 if head.is_idr else self._last
        next_number = None if last is None else (last + 1) % (1 << sps.frame_number_bits)
        missing = (
            not head.is_idr
            and not sps.gaps_allowed
            and last is not None
            and head.frame_number not in (last, next_number)
        )
        if head.is_reference:
            self._last = head.frame_number
        return missing

    def sets_of(self, head: SliceHead) -> tuple[bytes, bytes]:
        """Return the parameter sets that a slice needs."""
        pps = self._pps[head.pps]
        return self._sps[pps.sps].nal, pps.nal

    def _sps_of(self, pps: int) -> Sps | None:
        found = self._pps.get(pps)
        return self._sps.get(found.sps) if found is not None else None
