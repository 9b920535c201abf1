"""Training drafts that share their target's ends, and the data of an assistant."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from specdec.drafting.lookup.drafter import LookupDrafter
from specdec.models import load_model
from specdec.models.shared import shared_of
from specdec.verdict_log import LoggedAnswer, VerdictLog
from specnav.recipes.drafts.config import Sources
from specnav.recipes.drafts.data.assistant import (
    FORMS,
    SHARES,
    assistant_request,
    fill,
    report_request,
    request_of,
)
from specnav.recipes.drafts.data.sources import question_prompts
from specnav.recipes.drafts.figures import draft_figures
from specnav.recipes.drafts.measure import measured, perfect, replayed
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.drafts.teacher import Teacher
from specnav.recipes.drafts.train import train_draft
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import ExitSample, cut
from specnav.recipes.some_tokens import some_tokens
from tests.helpers.tuned import tuned
from tests.specdec.pretended_device import PretendedDevice, on_device
from tests.training.test_drafts import little
from tests.training.words import WORDS, said_by

ENDS = {"model.embed_tokens.weight", "lm_head.weight"}


@pytest.mark.slow
def test_only_the_layers_are_trained_and_stored(model_root: Path, tmp_path: Path) -> None:
    result = train_draft(little(model_root, tmp_path, share=True, tokens=200, on_policy=0.0))
    with safe_open(result.folder / "model.safetensors", framework="pt") as file:
        assert not ENDS & set(file.keys())
        assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"BF16"}  # noqa: SIM118
    assert not (result.folder / "tokenizer.json").exists()
    draft, target = load_model(result.folder), load_model(model_root / "text-target")
    for name in ENDS:
        assert torch.equal(draft.network.state_dict()[name], target.network.state_dict()[name])
    start, trained = (
        load_model(path).network.state_dict() for path in (tmp_path / "run" / "start", result.folder)
    )
    assert any(not torch.equal(trained[name], start[name]) for name in start)
    again = train_draft(little(model_root, tmp_path, share=True, tokens=200, on_policy=0.0))
    assert again.after == result.after


@pytest.mark.slow
@pytest.mark.parametrize(("learn", "own"), [("2", 1), ("0", 0)])
def test_other_layers_stay_the_targets(model_root: Path, tmp_path: Path, learn: str, own: int) -> None:
    """The draft's layer 1 is the target's layer 2: whether it learns or is shared, that is where it comes from."""
    config = little(model_root, tmp_path, draft="layers:0,2", share=True, learn=learn, on_policy=0.0)
    folder = train_draft(config).folder
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        stored = set(file.keys())
    layer = f"model.layers.{own}."
    assert f"{layer}mlp.down_proj.weight" in stored and all(name.startswith((layer, "model.norm")) for name in stored)
    draft, target = (load_model(path).network.state_dict() for path in (folder, model_root / "text-target"))
    there = {name: name.replace("layers.1.", "layers.2.") for name in draft}
    shared = {name for name in draft if name not in stored}
    assert shared > ENDS and all(torch.equal(draft[name], target[there[name]]) for name in shared)
    assert not torch.equal(draft[f"{layer}mlp.down_proj.weight"], target[there[f"{layer}mlp.down_proj.weight"]])


@pytest.mark.slow
def test_a_draft_that_shares_can_be_trained_further(model_root: Path, tmp_path: Path) -> None:
    first = train_draft(little(model_root, tmp_path, draft="layers:0,2", share=True, learn="0")).folder
    config = little(
        model_root, tmp_path, draft=str(first), out=tmp_path / "second", run=tmp_path / "more", share=True
    )
    second = train_draft(config).folder
    assert shared_of(second).about == shared_of(first).about  # type: ignore[union-attr]
    assert not (second / "tokenizer.json").exists()


@pytest.mark.slow
def test_a_draft_that_shares_learns_what_a_fine_tuned_target_says_and_shares_on_with_the_old_one(
    model_root: Path, tmp_path: Path
) -> None:
    """The low-rank term is in a layer that the draft shares: it must not come into it."""
    config = little(model_root, tmp_path, draft="layers:0,2", share=True, learn="2", on_policy=0.0)
    first = train_draft(config).folder
    other = DraftNetwork(str(tuned(model_root / "text-target", tmp_path / "tuned")))
    said = other.answer(question_prompts(other.loaded, WORDS, "words"), 12)
    log = VerdictLog(tmp_path / "log", "prompts")
    for text in said:
        ids = text.ids
        log.add(LoggedAnswer(other.loaded.vocabulary_fingerprint, ids[text.start :], prompt=ids[: text.start]))
    log.close()
    changed = {"target": "", "draft": str(first), "out": tmp_path / "learnt", "run": tmp_path / "more", "tokens": 200}
    sources = Sources(verdicts=(log.folder,))
    learnt = train_draft(little(model_root, tmp_path, sources=sources, steps=20, lr=5e-3, **changed)).folder
    figures = [draft_figures(DraftNetwork(str(folder)), said, 4) for folder in (first, learnt)]
    assert figures[1].agreement > figures[0].agreement
    shared, before = shared_of(learnt), shared_of(first)
    assert shared is not None and before is not None and shared.about == before.about
    assert shared.target.samefile(model_root / "text-target")
    folders = (model_root / "text-target", tmp_path / "tuned", learnt)
    old, new, own = (load_model(folder).network.state_dict() for folder in folders)
    moved = "model.layers.0.self_attn.o_proj.weight"
    assert moved in shared.about.sha256 and not torch.equal(old[moved], new[moved])
    assert all(torch.equal(own[name], old[name]) for name in shared.about.sha256)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"draft": "text-draft"}, "stores its own embeddings"),
        ({"target": "", "draft": "text-draft", "connect": "tcp://127.0.0.1:1"}, "give --target"),
        ({"tokens": -1}, "tokens must be a whole number, at least 0"),
        ({"tokens": 2}, "larger --tokens"),
        ({"draft": "layers:1,2", "learn": "0"}, "only layers that the draft has"),
        ({"draft": "layers:0-2", "learn": "2-1"}, "learn '2-1': give layers of the target in rising order"),
        ({"draft": "layers:0-99"}, "draft 'layers:0-99': give layers"),
        ({"draft": "layers:0-²"}, "rising order"),
    ],
)
def test_sharing_that_cannot_work_is_told_in_one_line(
    model_root: Path, tmp_path: Path, changed: dict, said: str
) -> None:
    if changed.get("draft") == "text-draft":
        changed = changed | {"draft": str(model_root / changed["draft"])}
    with pytest.raises(TrainingError, match=said) as caught:
        train_draft(little(model_root, tmp_path, share=True, **changed))
    assert "\n" not in str(caught.value)


def test_the_loss_over_part_of_the_vocabulary_holds_all_that_is_likely() -> None:
    generator = torch.Generator().manual_seed(0)
    likely = torch.stack([torch.randperm(1000, generator=generator)[:24] for _ in range(50)])
    chances = torch.randn(50, 24, generator=generator)
    among, counted, kept = some_tokens(likely, chances, 900, 1000, generator)
    assert len(among) == len(set(among.tolist())) == 900 and torch.equal(among, among.sort().values)
    assert torch.equal(among[counted], likely) and torch.equal(kept, chances)
    among, counted, kept = some_tokens(likely, chances, 300, 1000, generator)  # not all 24 columns fit
    columns = counted.shape[1]
    assert 0 < columns < 24 and len(among) == 300
    assert torch.equal(among[counted], likely[:, :columns]) and torch.equal(kept, chances[:, :columns])


def test_logits_of_some_tokens_are_those_of_all(model_root: Path) -> None:
    network = DraftNetwork(str(model_root / "text-target"))
    ids, among = torch.tensor([[5, 6, 7]]), torch.tensor([3, 90, 200])
    everything = network.logits(ids, torch.arange(3)[None])
    some = network.logits(ids, torch.arange(3)[None], among=among)
    assert torch.allclose(some, everything[..., among], atol=1e-5)


@pytest.mark.slow
def test_figures_and_lessons_on_a_device_are_those_of_the_cpu(
    model_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is pretended: no GPU was there when this was written."""
    monkeypatch.setattr("specdec.models.loading.read_model", lambda path: None)
    here = DraftNetwork(str(model_root / "text-target"))
    texts = said_by(here)
    expected, taught = draft_figures(here, texts, 4), Teacher(here, here, 48)._taught(texts)
    with PretendedDevice(), torch.inference_mode():
        there = DraftNetwork(str(model_root / "text-target"))
        there.loaded = on_device(there.loaded)
        there.module = there.loaded.network
        assert there.device.type != "cpu"
        assert draft_figures(there, texts, 4) == expected
        for one, other in zip(Teacher(there, there, 48)._taught(texts), taught, strict=True):
            assert one.likely.tolist() == other.likely.tolist()


def test_what_the_target_says_is_kept_for_the_next_sitting(model_root: Path, tmp_path: Path) -> None:
    target = DraftNetwork(str(model_root / "text-target"))
    texts = [found for text in said_by(target) if (found := cut(text, 48)) is not None]
    asked = Teacher(target, target, 48)
    asked.write_lessons(texts, tmp_path / "lessons.pt")
    knows = Teacher(target, target, 48)
    knows.learn_from(tmp_path / "lessons.pt")
    knows._taught = None  # type: ignore[assignment,method-assign]  # it must not ask again
    for one, other in zip(asked.lessons(texts), knows.lessons(texts), strict=True):
        assert torch.equal(one.likely, other.likely) and torch.equal(one.chances, other.chances)


@pytest.mark.slow
def test_a_run_from_an_assistants_requests(model_root: Path, tmp_path: Path) -> None:
    sources = Sources(assistant=True)
    changed = {"length": 400, "new_tokens": 8, "prompts": 24, "steps": 1, "batch": 1}
    result = train_draft(little(model_root, tmp_path, sources=sources, **changed))
    assert "nothing of any benchmark" in (result.folder / "README.md").read_text(encoding="utf-8")


def test_lookups_are_replayed_round_by_round_and_remember_earlier_answers() -> None:
    texts = [ExitSample((1, 2, *range(10, 20)), 2)] * 2
    found = replayed(texts, 4, LookupDrafter)
    assert (found.answers, found.tokens) == (2, 20)
    assert found.tau == pytest.approx(20 / 12)  # the first answer token by token, the second five at a time
    assert found.agreement == 1.0  # nothing was looked up for the first


@pytest.mark.slow
def test_the_better_of_both_gains_what_a_perfect_draft_gains(model_root: Path) -> None:
    target = DraftNetwork(str(model_root / "text-target"))
    texts = [text for text in target.answer(question_prompts(target.loaded, WORDS, "words"), 15)]
    both = measured(f"both:{model_root / 'text-target'}", texts, 4)
    assert both.tau >= perfect(texts, 4) - 1.0 and measured(str(model_root / "text-target"), texts, 4).agreement == 1.0


def test_shipped_drafts_are_measured_by_their_names_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [ExitSample((1, 2, *range(10, 14)), 2)]
    assert measured("default_models/text-draft", texts, 4).answers == 1
    assert measured("both:default_models/text-draft", texts, 4).answers == 1


class TestRequests:
    def test_every_form_can_be_filled(self) -> None:
        rng = random.Random(0)
        for forms in FORMS.values():
            for form in forms:
                assert "{" not in fill(form, rng)
        assert all("{" not in report_request(rng) for _ in range(50))

    def test_every_kind_is_asked_and_a_seed_gives_the_same(self) -> None:
        asked = [assistant_request(random.Random(seed), ("An article.",)) for seed in range(300)]
        assert {kind for kind, _ in asked} == set(SHARES)
        assert asked == [assistant_request(random.Random(seed), ("An article.",)) for seed in range(300)]
        assert {text for kind, text in asked if kind == "articles"} == {"Summarize: An article."}

    def test_code_to_be_completed_is_python(self) -> None:
        import ast

        for seed in range(100):
            asked = request_of("code", random.Random(seed))
            ast.parse(asked.removeprefix("Complete the code I provided.\n"))
