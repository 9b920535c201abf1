# SPDX-License-Identifier: Apache-2.0
"""Settings of `specnav doctor --gpu`, checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.options import DTYPES, DecodingOptions, ModelOptions
from specdec.settings import check_settings, same_as, setting, words
from specnav.errors import UsageError
from specnav.paths import DEFAULT_DRAFT, DEFAULT_TARGET
from specnav.settings import Printed

QUANTISED = ("8bit", "4bit")


def counts(text: str) -> tuple[int, ...]:
    """ "1,4,8" as numbers of at least 1. Raises UsageError."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise UsageError(f"counts must be whole numbers from 1 on, like 1,4,8, got {text!r}")
    return found


@dataclass(frozen=True)
class GpuDoctorConfig:
    """variants: ways to load the models; empty: the usual ones on the device. rtts_ms: round-trip times for which
    `auto` is asked.
    """

    model: str = setting(
        str(DEFAULT_TARGET), "With --gpu: the target.", metavar="FOLDER|HUB_ID", shown="the shipped one"
    )
    draft: str = setting(
        str(DEFAULT_DRAFT),
        "Draft to time on this device, in two seconds; with --gpu: the pair's draft model.",
        metavar="FILE|FOLDER|HUB_ID",
        shown="the shipped one",
    )
    device: str = same_as(ModelOptions, "device", help="With --gpu or --draft: auto, cpu, cuda or cuda:1.")
    variants: tuple[str, ...] = setting(
        (),
        "With --gpu: number types and quantisations in which to load the models.",
        choices=(*DTYPES[1:], *QUANTISED),
        metavar="A,B,...",
        shown="what is usual on the device",
        read=words,
    )
    rows: tuple[int, ...] = setting(
        (1, 2, 4, 6, 8, 16, 32),
        "Rows of forward passes; with --draft alone 1,2,4,8.",
        metavar="N,N,...",
        read=counts,
    )
    contexts: tuple[int, ...] = setting(
        (256, 2048), "With --gpu: tokens of context before these rows.", metavar="N,N,...", read=counts
    )
    gamma: int = same_as(DecodingOptions, "gamma", default=5, high=64, help="With --gpu: tokens of a draft.")
    seconds: float = setting(
        4.0,
        "How long to measure rates (--robot), a model (--gpu), or a draft (--draft: 2).",
        0.1,
        600,
        unit="s",
    )
    rtts_ms: tuple[float, ...] = (0.0, 15.0, 40.0, 80.0)
    json: bool = same_as(Printed, "json")

    def __post_init__(self) -> None:
        check_settings(self, UsageError)
