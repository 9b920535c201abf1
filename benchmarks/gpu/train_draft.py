# SPDX-License-Identifier: Apache-2.0
"""Run `specnav train draft` and print the seconds of each stage.

    python benchmarks/gpu/train_draft.py FLAGS_OF_THE_COMMAND

With DEVICE=cpu in the environment, the code paths of a GPU are run on the CPU, with short texts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from specnav.cli.app import main
from specnav.recipes.drafts import train
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.stages import Stages

BEGAN = time.monotonic()


def say(words: str) -> None:
    """Print one line with the seconds since the start."""
    print(f"{time.monotonic() - BEGAN:.1f} s: {words}", flush=True)


def tell_times() -> None:
    """Make every stage print its duration, and every call for answers its tokens per second."""
    counted, answer, learn = Stages.counted, DraftNetwork.answer, Stages.train

    @contextmanager
    def timed(self: Stages, title: str, total: int) -> Iterator[Callable[[int, int], None]]:
        began = time.monotonic()
        with counted(self, title, total) as progress:
            yield progress
        say(f"{title}: {total} in {time.monotonic() - began:.1f} s")

    def answered(self: DraftNetwork, *given: Any, **named: Any) -> Any:
        began, bulk = time.monotonic(), self.answers_in_bulk
        texts = answer(self, *given, **named)
        tokens, took = sum(len(text.ids) - text.start for text in texts), time.monotonic() - began
        way = ", in bulk" if bulk and self.answers_in_bulk else ""
        say(f"  {len(texts)} answers, {tokens / took:.0f} tokens/s{way}")
        return texts

    def learnt(self: Stages, *given: Any, **named: Any) -> tuple[int, float]:
        steps, seconds = learn(self, *given, **named)
        say(f"training: {steps} updates in {seconds:.1f} s")
        return steps, seconds

    Stages.counted, DraftNetwork.answer, Stages.train = timed, answered, learnt  # type: ignore[method-assign, assignment]


def pretend_gpu() -> None:
    """Run the code paths of a GPU on the CPU."""
    made = DraftNetwork.__init__

    def make(self: DraftNetwork, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        self.answers_in_bulk = self.packs(self.loaded.context_limit)

    DraftNetwork.__init__ = make  # type: ignore[method-assign]
    train.on_gpu, train.number_type = lambda: True, lambda target: "float32"
    train.ARTICLE_TOKENS = train.BULK_ARTICLE_TOKENS = train.REQUEST_TOKENS = 16


if __name__ == "__main__":
    tell_times()
    if os.environ.get("DEVICE") == "cpu":
        pretend_gpu()
    sys.argv[:] = ["specnav", "train", "draft", *sys.argv[1:]]
    main()
