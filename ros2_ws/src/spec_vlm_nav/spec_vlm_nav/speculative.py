"""The real decider: drafts here, has the drafts verified in the cloud, and streams out what is verified.

The only module of this package that touches models and links. It must never hand out text that was not verified.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image

from spec_vlm_nav.decider import DecoderSettings
from spec_vlm_nav.decision import Answer, DecisionFailed, ErrorCode, Job, Round, Span
from spec_vlm_nav.errors import FrameError, InstructionError, NavigationError
from spec_vlm_nav.images import black_like, prepare, to_jpeg
from spec_vlm_nav.prompting import PromptSpec, build_prompt, choose_frames
from specdec.edge import EdgeDecoder, GenerationOptions, connect
from specdec.errors import LinkLost, ModelError, SpecdecError
from specdec.link.channel import Link
from specdec.methods import get_method
from specdec.models import LoadedModel, Prompt, load_model, load_tokenizer
from specdec.stats import AnswerStats
from specdec.text import StreamingText

WARM_UP_SIZE = (224, 140)


def prompt_spec(model: str, preset: str) -> PromptSpec:
    """Return the preset named, or with "auto" what lies in the model's folder, else what suits such a model."""
    if preset != "auto":
        return PromptSpec.preset(preset)
    return PromptSpec.from_model_folder(model, "tiny_nav" if Path(model).is_dir() else "qwen2_vl")


class SpeculativeDecider:
    """The real decider: specdec's edge decoder against a cloud verifier.

    Everything that a first decision would be late for is done at the start: loading, a forward of each kind.
    """

    def __init__(self, settings: DecoderSettings) -> None:
        """Load what the edge needs. Raises specdec's SpecdecError or a NavigationError, one line each."""
        torch.set_num_threads(settings.threads)
        self._settings = settings
        self._spec = prompt_spec(settings.draft_model, settings.prompt)
        self._model: LoadedModel | None = None
        if get_method(settings.method).drafts:
            self._model = load_model(settings.draft_model, settings.device, settings.dtype, settings.quantize)
        self._tokenizer = self._model.tokenizer if self._model else load_tokenizer(settings.draft_model)
        self._link: Link | None = None
        self._decoder: EdgeDecoder | None = None
        self._warm_up()

    def use(self, settings: DecoderSettings) -> None:
        """See Decider."""
        if (settings.method, settings.gamma) != (self._settings.method, self._settings.gamma):
            self._decoder = None
        self._settings = settings

    def _warm_up(self) -> None:
        """Run the draft once on a black picture; a model that cannot take a prompt says so now, not on the way."""
        black = to_jpeg(Image.new("RGB", WARM_UP_SIZE))
        frames = choose_frames(self._spec, (), black, black)
        prompt = build_prompt(self._spec, self._tokenizer, "warm up", frames)
        if self._model is not None:
            session = self._model.new_session()
            session.prefill(self._model.encode(prompt))
            session.extend([prompt.ids[0]])

    def decide(self, job: Job, cancel: threading.Event, on_text: Callable[[str, bytes], None]) -> Answer:
        """See Decider."""
        began = time.monotonic()
        try:
            jpeg = prepare(job.frame.picture, self._settings.picture)
            black = black_like(jpeg) if self._spec.pad_history else None
            frames = choose_frames(self._spec, job.past, jpeg, black)
            prompt = build_prompt(self._spec, self._tokenizer, job.instruction, frames, job.last_actions)
        except (FrameError, InstructionError) as error:
            raise DecisionFailed(ErrorCode.INVALID_INPUT, str(error)) from error
        except NavigationError as error:
            raise DecisionFailed(ErrorCode.INTERNAL, str(error)) from error
        prepared_ms = (time.monotonic() - began) * 1e3
        return self._generate(prompt, jpeg, prepared_ms, cancel, on_text)

    def _generate(
        self,
        prompt: Prompt,
        jpeg: bytes,
        prepared_ms: float,
        cancel: threading.Event,
        on_text: Callable[[str, bytes], None],
    ) -> Answer:
        s = self._settings
        options = GenerationOptions(s.max_new_tokens, s.temperature, s.seed)
        if self._link is None:
            self._link = connect(s.verifier, s.connect_timeout_s, s.reply_timeout_s)
        if self._decoder is None:  # one for all answers: it learns what the link and the models take
            self._decoder = EdgeDecoder(self._link, self._model, s.method, s.gamma)
        decoder = self._decoder
        text, ids = StreamingText(self._tokenizer), []
        failure: tuple[ErrorCode, str] | None = None
        try:
            for chunk in decoder.generate(prompt, options, cancel):
                ids.extend(chunk)
                if text.push(chunk):
                    on_text(text.text, jpeg)
            text.finish()
        except LinkLost as error:
            failure = (ErrorCode.LINK_LOST, str(error))
        except ModelError as error:
            failure = (ErrorCode.INVALID_INPUT, str(error))
        except SpecdecError as error:
            # A verifier that refuses us (other version, other vocabulary) is as good as none.
            failure = (ErrorCode.LINK_LOST, str(error))
        answer = answer_of(text.text, tuple(ids), tuple(prompt.ids), decoder.stats, prepared_ms)
        if failure is not None:
            raise DecisionFailed(*failure, answer)
        if cancel.is_set():
            raise DecisionFailed(ErrorCode.CANCELED, "canceled", answer)
        on_text(text.text, jpeg)
        return answer

    def close(self) -> None:
        """See Decider."""
        if self._link is not None:
            self._link.close()
            self._link = self._decoder = None


def answer_of(
    text: str, ids: tuple[int, ...], prompt_ids: tuple[int, ...], stats: AnswerStats, prepared_ms: float
) -> Answer:
    """Turn specdec's AnswerStats into an Answer; times start `prepared_ms` before generation did."""
    return Answer(
        text=text,
        token_ids=ids,
        prompt_ids=prompt_ids,
        rounds=tuple(
            Round(r.drafted, r.accepted, r.uplink_bytes, r.downlink_bytes, r.draft_ms, r.wait_ms, r.verify_ms)
            for r in stats.rounds
        ),
        timeline=(
            Span("edge", "prepare frame", 0.0, prepared_ms),
            *(
                Span(s.lane, s.name, prepared_ms + s.start_s * 1e3, prepared_ms + s.end_s * 1e3)
                for s in stats.timeline
            ),
        ),
        prompt_bytes=stats.prompt_bytes,
        prefill_ms=stats.prefill_ms,
        cloud_prefill_ms=stats.cloud_prefill_ms,
        ttft_ms=prepared_ms + stats.ttft_ms,
        total_ms=prepared_ms + stats.total_ms,
    )
