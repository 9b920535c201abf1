# SPDX-License-Identifier: Apache-2.0
"""A target behind a running verifier, which returns only tokens; a draft learns these instead of distributions."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.edge.decoder import EdgeDecoder
from specdec.link.channel import Link
from specdec.models import LoadedModel
from specdec.models.loaded import speaks
from specdec.options import GenerationOptions
from specnav.recipes.drafts.network import Progress
from specnav.recipes.errors import TrainingError
from specnav.recipes.exits.encoding import end_id
from specnav.recipes.samples import ExitSample


class RemoteTarget:
    """Answers prompts like `DraftNetwork.answer`, one after another, over a link with method `ar`."""

    def __init__(self, link: Link | None, speaker: LoadedModel) -> None:
        """Connect to the target. link: None: there is no target. speaker: makes prompts; the draft.

        Raises TrainingError for different vocabularies; the errors of the link pass through.
        """
        self.loaded = speaker
        if link is None:
            self._decoder = None
            return
        welcome = link.ensure_connected()
        if not speaks(speaker, welcome.vocabulary):
            raise TrainingError(
                f"draft {speaker.path} and target {welcome.model} have different vocabularies: "
                "start from a model of the target's family"
            )
        self._decoder = EdgeDecoder(link, None, "ar", tokenizer=speaker.tokenizer)

    def answer(
        self,
        prompts: Sequence[ExitSample],
        new_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        progress: Progress = lambda done, total: None,
    ) -> list[ExitSample]:
        """Texts: the prompts with answers of at most `new_tokens` tokens, including their end."""
        texts: list[ExitSample] = []
        if self._decoder is None:
            return texts
        for number, prompt in enumerate(prompts):
            options = GenerationOptions(new_tokens, temperature, seed + number)
            said = [
                token
                for chunk in self._decoder.generate(prompt.read(), options)
                for token in chunk
            ]
            if self._decoder.stats.finish == "eos" and self.loaded.eos_token_ids:
                said.append(end_id(self.loaded))
            texts.append(prompt.answered(said))
            progress(number + 1, len(prompts))
        return texts
