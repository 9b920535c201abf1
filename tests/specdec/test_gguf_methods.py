"""Every method with a draft on llama.cpp: the answers are the target's own, and drafts are worth what torch's are."""

from __future__ import annotations

import threading
from functools import cache

import pytest

from specdec.edge.decoder import EdgeDecoder
from specdec.edge.stats import AnswerStats
from specdec.link.wire import Down
from specdec.methods import METHODS, get_method
from specdec.models import GgufOptions, LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.sampling.recoveries import Recovery
from tests.helpers import drafts
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair, patiently_connected
from tests.specdec.checks import unlike_when_greedy
from tests.specdec.wired import WiredLink

pytestmark = [pytest.mark.slow, pytest.mark.gguf]

DRAFTING = [name for name in METHODS if get_method(name).drafts]
SAMPLED = [name for name in DRAFTING if get_method(name).recovery is Recovery.NOISE]
GREEDY = GenerationOptions(40)
NOISE = GenerationOptions(32, temperature=0.9, seed=3, top_p=0.95, repetition_penalty=1.1)


def prompt_of(model: LoadedModel, text: str = "the quick brown fox") -> Prompt:
    return chat_prompt(model, text, images=[tiny.picture(1)] if model.is_multimodal else [])


@cache
def alone(model: LoadedModel, prompt: Prompt, options: GenerationOptions) -> list[int]:
    return generate_local(model, prompt, options)


def ask(
    pair: Pair, method: str, options: GenerationOptions, backend: str = drafts.GGUF, **link: object
) -> tuple[list[int], AnswerStats]:
    draft = drafts.draft_on(backend, "vision" if pair.target.is_multimodal else "text")
    cloud = draft if get_method(method).cloud_drafts else None
    decoder = EdgeDecoder(WiredLink(pair.target, cloud, **link), draft, method, resume_timeout_s=60)  # type: ignore[arg-type]
    answer = [token for chunk in decoder.generate(prompt_of(pair.target), options) for token in chunk]
    return answer, decoder.stats


@pytest.mark.parametrize("method", [*unlike_when_greedy(DRAFTING), "cloud-sd"])
def test_greedy_answers_are_the_targets_own(text_pair: Pair, method: str) -> None:
    answer, stats = ask(text_pair, method, GREEDY, slowness=0.5, seed=4)
    assert answer == alone(text_pair.target, prompt_of(text_pair.target), GREEDY)
    assert sum(one.drafted for one in stats.rounds) > 0 or method == "auto"


@pytest.mark.parametrize("method", SAMPLED)
def test_sampled_answers_with_processors_are_the_targets_own(text_pair: Pair, method: str) -> None:
    answer, _ = ask(text_pair, method, NOISE, slowness=0.5, seed=5)
    assert answer == alone(text_pair.target, prompt_of(text_pair.target), NOISE)


@pytest.mark.parametrize("method", DRAFTING)
def test_answers_about_pictures_are_the_targets_own(
    vision_pair: Pair, servers: dict[str, str], method: str
) -> None:
    draft, prompt = drafts.draft_on(drafts.GGUF, "vision"), prompt_of(vision_pair.target)
    with patiently_connected(servers[vision_pair.target.path]) as link:
        decoder, accepted = EdgeDecoder(link, draft, method), 0
        for options in (GREEDY, NOISE) if method in SAMPLED else (GREEDY,):
            answer = [token for chunk in decoder.generate(prompt, options) for token in chunk]
            assert answer == alone(vision_pair.target, prompt, options)
            accepted += sum(one.accepted for one in decoder.stats.rounds)
        assert accepted or method == "auto"


def test_what_the_edge_keeps_of_pictures_and_prompts_serves_the_next_one(
    vision_pair: Pair, servers: dict[str, str]
) -> None:
    draft = drafts.draft_on(drafts.GGUF, "vision")
    with patiently_connected(servers[vision_pair.target.path]) as link:
        decoder = EdgeDecoder(link, draft, "sd")
        for text in ("a ball", "a ball", "a box"):
            prompt = prompt_of(vision_pair.target, text)
            answer = [token for chunk in decoder.generate(prompt, GREEDY) for token in chunk]
            assert answer == alone(vision_pair.target, prompt, GREEDY)
        memory = decoder.memory
        assert memory is not None and memory.looked_at == 1 and memory.taken_over > 60


@pytest.mark.parametrize("method", ["sd", "fsd", "specedge", "picospec"])
def test_a_link_that_breaks_changes_nothing(text_pair: Pair, method: str) -> None:
    answer, stats = ask(text_pair, method, GREEDY, cuts=(2, 5), slowness=0.3, seed=6)
    assert answer == alone(text_pair.target, prompt_of(text_pair.target), GREEDY)
    assert stats.resumes > 0


@pytest.mark.parametrize("method", ["sd", "sd+tree:12x4"])
def test_drafts_are_torchs_own(text_pair: Pair, method: str) -> None:
    """In float32 both engines draft the same tokens, so that as many are accepted."""
    rounds = [
        [(one.drafted, one.accepted) for one in ask(text_pair, method, GREEDY, backend)[1].rounds]
        for backend in (drafts.TORCH, drafts.GGUF)
    ]
    assert rounds[0] == rounds[1] and any(accepted for _, accepted in rounds[0])


def test_a_context_too_short_for_the_answer_lets_the_target_go_on_alone(text_pair: Pair) -> None:
    """And one that others have filled is a draft model that has failed: no token changes."""
    draft = drafts.draft_on(drafts.GGUF, "text", GgufOptions(threads=1, context=96, kv="f32"))
    options = GenerationOptions(60, min_new_tokens=60)
    for method in ("sd", "fsd", "specedge"):
        decoder = EdgeDecoder(WiredLink(text_pair.target), draft, method)
        answer = [
            token for chunk in decoder.generate(prompt_of(text_pair.target), options) for token in chunk
        ]
        assert answer == alone(text_pair.target, prompt_of(text_pair.target), options), method


class BrokenOff(WiredLink):
    """A link on which nothing comes back from the third draft on; who looks often enough in vain is instructed to
    stop.
    """

    def __init__(self, target: LoadedModel, stop: threading.Event) -> None:
        super().__init__(target, slowness=0.5, seed=7)
        self._stop, self._looks = stop, 0

    def receive(self, timeout_s: float) -> tuple[Down, int] | None:
        if self.rounds < 3:
            return super().receive(timeout_s)
        self._looks += 1
        if self._looks > 60:
            self._stop.set()
        return None


def test_answers_that_are_broken_off_leave_what_they_have_prepared(
    text_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """A slow link and a quick draft: three of them together have more branches than there are."""
    draft, prompt = drafts.draft_on(drafts.GGUF, "text"), prompt_of(text_pair.target)
    decoders = []
    for _ in range(3):
        stop = threading.Event()
        decoders.append(EdgeDecoder(BrokenOff(text_pair.target, stop), draft, "fsd+rows:30"))
        for _ in decoders[-1].generate(prompt, GREEDY, stop):
            pass
    assert draft.new_session().branches_left > 20
    decoder = EdgeDecoder(WiredLink(text_pair.target, slowness=0.9, seed=7), draft, "specedge")
    said = [token for chunk in decoder.generate(prompt, GREEDY) for token in chunk]
    assert said == alone(text_pair.target, prompt, GREEDY)
    assert "has failed" not in caplog.text


def test_a_context_that_others_have_filled_lets_the_target_answer_alone(
    text_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    draft = drafts.draft_on(drafts.GGUF, "text", GgufOptions(threads=1, context=256, kv="f32"))
    holder = draft.new_session()
    holder.prefill(draft.encode(Prompt(tuple(range(240)))))
    decoder = EdgeDecoder(WiredLink(text_pair.target), draft, "sd")
    prompt = prompt_of(text_pair.target)
    answer = [token for chunk in decoder.generate(prompt, GREEDY) for token in chunk]
    assert answer == alone(text_pair.target, prompt, GREEDY)
    assert "context of 256 tokens is full" in caplog.text


def test_two_edges_draft_on_one_loaded_model(text_pair: Pair) -> None:
    draft = drafts.draft_on(drafts.GGUF, "text")
    decoders = [EdgeDecoder(WiredLink(text_pair.target), draft, method) for method in ("fsd", "specedge")]
    prompts = [prompt_of(text_pair.target, text) for text in ("hello", "1 + 1 =")]
    streams = [one.generate(prompt, GREEDY) for one, prompt in zip(decoders, prompts, strict=True)]
    answers: list[list[int]] = [[], []]
    going = [0, 1]
    while going:
        for which in list(going):
            chunk = next(streams[which], None)
            if chunk is None:
                going.remove(which)
            else:
                answers[which] += chunk
    assert answers == [alone(text_pair.target, prompt, GREEDY) for prompt in prompts]


def test_row_times_are_known_before_the_first_draft(text_pair: Pair) -> None:
    draft = drafts.draft_on(drafts.GGUF, "text")
    assert [rows for rows, _ in draft.row_us][:4] == [1, 2, 4, 8] and all(us > 0 for _, us in draft.row_us)
