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
A decider that loads its model in the background, so that the node responds meanwhile.

Loading runs in a thread and no call waits for it. Callers check `is_ready` before they decide. An
error of the loading is kept as `failure`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import threading
import time

from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.model.course import RoundHistory
from spec_vlm_nav.model.decider import (
    Decider,
    DecisionFailed,
    DecisionJob,
    DecoderSettings,
    LinkReport,
    ModelAnswer,
    ModelQuestion,
    OnText,
)

# Settings read while the model is loaded: they cannot change during loading.
OF_LOADING = ("draft_model", "gguf", "device", "dtype", "quantize", "threads", "verifier", "verifier_key")


class DeferredDecider:
    """See Decider. Construction begins the loading."""

    def __init__(
        self,
        make: Callable[[DecoderSettings], Decider],
        settings: DecoderSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failure: Exception | None = None
        self._make, self._settings, self._clock = make, settings, clock
        self._began = clock()
        self._inner: Decider | None = None
        self._open: Callable[[LinkState], None] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._load, name="loading", daemon=True)
        self._thread.start()

    def _load(self) -> None:
        begun_with = self._settings
        try:
            inner = self._make(begun_with)
        except Exception as error:  # the node must report any failure
            self.failure = error
            return
        with self._lock:
            try:
                if self._settings != begun_with:
                    inner.use(self._settings)
                if self._open is not None:
                    inner.open(self._open)
            except Exception as error:
                self.failure = error
                return
            self._inner = inner

    @property
    def is_ready(self) -> bool:
        """Return whether the model is loaded."""
        return self._inner is not None

    @property
    def loading_s(self) -> float:
        """Return the time since loading began, s."""
        return self._clock() - self._began

    def open(self, on_link_change: Callable[[LinkState], None]) -> None:  # noqa: A003
        with self._lock:
            self._open = on_link_change
            if self._inner is not None:
                self._inner.open(on_link_change)

    def close(self) -> None:
        with self._lock:
            self._open = None
            if self._inner is not None:
                self._inner.close()

    def check(self, settings: DecoderSettings) -> None:
        if self._inner is not None:
            self._inner.check(settings)
            return
        for name in OF_LOADING:
            if getattr(settings, name) != getattr(self._settings, name):
                raise ParameterError(f"parameter {name} cannot change now: the model is being loaded")

    def use(self, settings: DecoderSettings) -> None:
        with self._lock:
            self._settings = settings
            if self._inner is not None:
                self._inner.use(settings)

    def swap_draft(self, folder: str) -> None:
        if self._inner is None:
            raise ParameterError("the model is still being loaded: try again when it is ready")
        self._inner.swap_draft(folder)

    def link(self) -> LinkReport:
        return LinkReport() if self._inner is None else self._inner.link()

    def figures(self) -> Mapping[str, object]:
        return {} if self._inner is None else self._inner.figures()

    def so_far(self) -> Sequence[tuple[str, int]]:
        return () if self._inner is None else self._inner.so_far()

    def course(self) -> RoundHistory:
        return RoundHistory() if self._inner is None else self._inner.course()

    def decide(self, job: DecisionJob, cancel: threading.Event, on_text: OnText) -> ModelAnswer:
        return self._loaded().decide(job, cancel, on_text)

    def verify(self, question: ModelQuestion, cancel: threading.Event) -> ModelAnswer:
        return self._loaded().verify(question, cancel)

    def _loaded(self) -> Decider:
        if self._inner is None:
            raise DecisionFailed(ErrorCode.INTERNAL, "the model is still being loaded", ModelAnswer())
        return self._inner
