# SPDX-License-Identifier: Apache-2.0
"""The robots' links by name, with their profiles."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from specdec.errors import OptionsError
from specdec.link.shaping import LinkProfile
from specnav.results.errors import EvaluationError

PRESETS = {
    "wifi6": LinkProfile(rtt_ms=8.0, jitter_ms=4.0, bandwidth_mbps=200.0, loss=0.001),
    "5g": LinkProfile(rtt_ms=25.0, jitter_ms=12.0, bandwidth_mbps=50.0, loss=0.002),
    "lte": LinkProfile(rtt_ms=50.0, jitter_ms=25.0, bandwidth_mbps=12.0, loss=0.005),
}
"""Our assumptions for links to a verifier in the same building or region; measure your own. Bandwidth: uplink."""


def profile_of(link: str, **parts: Any) -> LinkProfile:
    """The profile of a preset, or of a round trip in milliseconds. parts: fields that replace the profile's own.

    Raises EvaluationError for an unknown link and for invalid figures.
    """
    found = PRESETS.get(link)
    if found is None:
        try:
            found = LinkProfile(rtt_ms=float(link))
            if not math.isfinite(found.rtt_ms):
                raise ValueError
        except ValueError:
            raise EvaluationError(
                f"link {link!r} is unknown: choose {', '.join(PRESETS)} or give its round trip in ms, like 40"
            ) from None
        except OptionsError as error:
            raise EvaluationError(str(error)) from None
    try:
        return replace(found, **{name: value for name, value in parts.items() if value is not None})
    except OptionsError as error:
        raise EvaluationError(str(error)) from None


def in_words(link: LinkProfile) -> str:
    """The profile as text, e.g. "RTT 8 ms, jitter 4 ms, 200 Mbit/s, loss 0.1 %"."""
    words = [f"RTT {link.rtt_ms:g} ms"]
    words += [f"jitter {link.jitter_ms:g} ms"] * (link.jitter_ms > 0)
    words += [f"{link.bandwidth_mbps:g} Mbit/s"] * (link.bandwidth_mbps > 0)
    words += [f"loss {100 * link.loss:g} %"] * (link.loss > 0)
    return ", ".join(words)
