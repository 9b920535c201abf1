"""What has been ordered and is still in force."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class StopOrder:
    """An order after which nothing may move until it is lifted."""

    what: str
    at: float
    bound: float
    needs: str  # what lifts it: "instruct", or "reset" and then an instruction
    reset: bool = False


@dataclass
class OpenInstruction:
    """An instruction that has not ended yet."""

    text: str
    began: float
