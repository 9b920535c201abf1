"""Drafts that learn: from a target here, through a verifier, from logs and bags; and what goes wrong on the way."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import torch

from specdec.edge.decoder import connect
from specdec.models import load_model
from specdec.verdict_log import LoggedAnswer, VerdictLog
from specnav.recipes.drafts.config import Sources, TrainDraftConfig
from specnav.recipes.drafts.curve import AcceptancePoint, draw_curve, read_curve, write_curve
from specnav.recipes.drafts.data.logged import logged_texts, split
from specnav.recipes.drafts.data.ordinary import ordinary_request
from specnav.recipes.drafts.data.prose import read_packages, request
from specnav.recipes.drafts.data.sources import gather, question_prompts, read_texts
from specnav.recipes.drafts.figures import draft_figures, sampled_figures
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.drafts.remote import RemoteTarget
from specnav.recipes.drafts.start import kept_dtype, start_folder
from specnav.recipes.drafts.train import number_type, train_draft
from specnav.recipes.drafts.writing import write_answers
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import ExitSample
from tests.bags.made_up import MadeUp
from tests.helpers.servers import Pair
from tests.training.words import WORDS, said_by

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "vision"])
def test_batched_answers_are_the_librarys(model_root: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """Padded in front, with and without pictures, they are what serving says one by one."""
    from specdec.models.local import stream_local
    from specdec.options import GenerationOptions

    network = DraftNetwork(str(model_root / f"{kind}-target"))
    prompts = question_prompts(network.loaded, WORDS[:3], "words")
    if kind == "vision":
        from PIL import Image

        from specdec.models import Prompt, chat_prompt

        folder = request.getfixturevalue("tmp_path")
        for number in range(2):
            file = folder / f"{number}.png"
            Image.new("RGB", (56 + 28 * number, 56), (40 * number, 90, 200)).save(file)
            asked = chat_prompt(network.loaded, WORDS[number], [file.read_bytes()])
            prompts.append(ExitSample(asked.ids, len(asked.ids), (str(file),), "picture"))
    for prompt, text in zip(prompts, network.answer(prompts, 8), strict=True):
        from specdec.models import Prompt

        whole = Prompt(prompt.ids, tuple(Path(file).read_bytes() for file in prompt.images))
        said = list(stream_local(network.loaded, whole, GenerationOptions(8)))
        said = said[: next((i for i, t in enumerate(said) if t in network.loaded.never_drafted), len(said))]
        assert list(text.ids[text.start : text.start + len(said)]) == said


def test_a_jump_in_the_positions_does_not_cut_a_text_in_two(model_root: Path) -> None:
    network = DraftNetwork(str(model_root / "text-target"))
    ids, positions = torch.tensor([[5, 6, 7, 8, 9, 10]] * 2), torch.arange(6).expand(2, -1).clone()
    positions[:, 3:] += 20
    ids[1, 0] = 11
    first, second = network.logits(ids, positions)[:, 4]
    assert not torch.allclose(first, second)  # what stood in front of the jump is seen behind it


def test_figures_know_the_target_and_its_entropy(model_root: Path) -> None:
    target = DraftNetwork(str(model_root / "text-target"))
    texts = said_by(target)
    same = sampled_figures(target, target, texts)
    assert same.overlap == pytest.approx(1.0) and 0.0 < same.again < 1.0 < same.entropy
    greedy = target.answer(question_prompts(target.loaded, WORDS, "words"), 15)
    assert draft_figures(target, greedy, 4).agreement == 1.0


def write_questions(file: Path, count: int = 16) -> Path:
    lines = [{"question_id": n, "turns": [f"{WORDS[n % 6]} {n}"]} for n in range(count)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def little(model_root: Path, place: Path, **changed: object) -> TrainDraftConfig:
    questions = write_questions(place / "questions.jsonl")
    settings: dict[str, object] = {
        "target": str(model_root / "text-target"), "draft": "layers:0", "out": place / "out", "run": place / "run",
        "sources": Sources(questions=(questions,)), "held_out": 4, "length": 48, "new_tokens": 12, "steps": 3,
        "batch": 4, "compile": False,
    }  # fmt: skip
    return TrainDraftConfig(**(settings | changed))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_whole_run_leaves_a_draft_with_card_and_curve_and_goes_on_where_it_was(
    model_root: Path, tmp_path: Path, charts: None
) -> None:
    result = train_draft(little(model_root, tmp_path))
    draft = load_model(result.folder)
    assert draft.runner.layer_count == 1
    target = load_model(model_root / "text-target")
    assert draft.vocabulary_fingerprint == target.vocabulary_fingerprint
    card = (result.folder / "README.md").read_text(encoding="utf-8")
    assert "layers 0" in card and "questions.jsonl" in card and f"{result.after.tau:.2f}" in card
    points = json.loads((result.folder / "acceptance.json").read_text())["points"]
    assert [point["step"] for point in points] == [0, 3]
    again = train_draft(little(model_root, tmp_path))  # nothing is left to do but to write it again
    assert again.after == result.after
    with pytest.raises(TrainingError, match="other settings"):
        train_draft(little(model_root, tmp_path, hard=0.1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"draft": "layers:7,0"}, "rising order"),
        ({"draft": "layers:0,99"}, "rising order"),
        ({"on_policy": 1.5}, "on_policy must be a number from 0 to 1"),
        ({"steps": 0}, "steps must be a whole number, at least 1"),
        ({"new_tokens": 47}, "no room for a prompt"),
        ({"connect": "tcp://127.0.0.1:1"}, "two ways"),
        ({"target": ""}, "layers can be taken"),
        ({"target": "", "draft": "somewhere"}, "no target is given"),
        ({"sources": Sources(texts=(Path("/nowhere"),))}, "neither a text file"),
        ({"key": Path("/nowhere")}, "--connect"),
        (
            {"target": "", "draft": "x", "sources": Sources(verdicts=(Path("/nowhere"),), assistant=True)},
            "no target is given",
        ),
        ({"sources": Sources(instruction="go")}, "--bag"),
        ({"out": Path("/")}, "--out"),
        ({"sources": Sources(bags=(Path("/nowhere"),))}, "accepts no pictures"),
    ],
)
def test_what_cannot_work_is_told_in_one_line(model_root: Path, tmp_path: Path, changed: dict, said: str) -> None:
    with pytest.raises(TrainingError, match=said) as caught:
        train_draft(little(model_root, tmp_path, **changed))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_training_is_not_continued_with_another_text_below_its_folder(model_root: Path, tmp_path: Path) -> None:
    page = tmp_path / "texts" / "more" / "page.txt"
    page.parent.mkdir(parents=True)
    page.write_text("A lamp stands here.")
    config = little(model_root, tmp_path, sources=Sources(texts=(tmp_path / "texts",)))
    with pytest.raises(TrainingError, match="too few prompts"):  # so little text; the run has begun
        train_draft(config)
    page.write_text("A mug stands here.")
    with pytest.raises(TrainingError, match="other settings or data"):
        train_draft(config)


def test_nothing_is_replaced_that_is_no_draft(model_root: Path, tmp_path: Path) -> None:
    thesis = tmp_path / "work" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years", encoding="utf-8")
    target = shutil.copytree(model_root / "text-target", tmp_path / "target")
    before = {file.name: file.read_bytes() for file in target.iterdir()}
    places = {thesis.parent: "other content", thesis: "a file", target: "--target", target / "draft": "--target"}
    other = shutil.copytree(model_root / "text-draft", tmp_path / "other")  # somebody's model
    places[other] = "other content"
    places |= {tmp_path: "--target", tmp_path / "run": "--run"}
    (tmp_path / "run").mkdir()
    for place, said in places.items():
        with pytest.raises(TrainingError, match=said):
            train_draft(little(model_root, tmp_path, target=str(target), out=place))
    assert thesis.read_text(encoding="utf-8") == "years"
    assert {file.name: file.read_bytes() for file in target.iterdir()} == before


@pytest.mark.slow
def test_a_draft_may_take_the_place_of_the_one_it_was_trained_from(model_root: Path, tmp_path: Path) -> None:
    draft = shutil.copytree(model_root / "text-draft", tmp_path / "draft")
    train_draft(little(model_root, tmp_path, draft=str(draft), out=draft, steps=1, seed=2**63 - 1))  # any will do
    assert (draft / "acceptance.json").exists()


@pytest.mark.slow
def test_a_row_too_short_for_a_picture_is_told_before_anything_is_written(tmp_path: Path) -> None:
    changed = {role: str(ROOT / "default_models" / f"nav-{role}") for role in ("target", "draft")}
    sources = Sources(bags=(ROOT / "tests" / "data" / "rooms.mcap",))
    with pytest.raises(TrainingError, match="with its picture"):
        train_draft(little(ROOT, tmp_path, sources=sources, new_tokens=16, **changed))
    assert not list((tmp_path / "run").glob("texts*"))


@pytest.mark.slow
def test_more_updates_of_a_run_that_ended_are_not_passed_over_in_silence(model_root: Path, tmp_path: Path) -> None:
    train_draft(little(model_root, tmp_path, steps=1))
    with pytest.raises(TrainingError, match="ended after 1 updates"):
        train_draft(little(model_root, tmp_path, steps=3))
    with (tmp_path / "run" / "draft.log").open("a", encoding="utf-8") as log:
        log.write('{"step": 1, "sec')  # as a kill leaves it
    assert train_draft(little(model_root, tmp_path, steps=1)).after.answers == 2


@pytest.mark.slow
def test_a_card_says_that_a_verifier_was_asked(
    servers: dict[str, str], text_pair: Pair, model_root: Path, tmp_path: Path
) -> None:
    changed = {"target": "", "draft": str(model_root / "text-draft"), "connect": servers[text_pair.target.path]}
    result = train_draft(little(model_root, tmp_path, steps=1, **changed))
    assert "asked through a verifier" in (result.folder / "README.md").read_text(encoding="utf-8")


def test_a_draft_of_another_vocabulary_is_refused(model_root: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="different vocabularies"):
        train_draft(little(model_root, tmp_path, draft=str(ROOT / "default_models" / "text-draft")))


@pytest.mark.slow
def test_a_full_disk_is_told_and_the_former_draft_stays(
    model_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = little(model_root, tmp_path, steps=1)
    train_draft(config)
    before = {file.name: file.read_bytes() for file in config.out.iterdir()}

    def full(*arguments: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("specnav.recipes.drafts.train.add_companions", full)
    with pytest.raises(TrainingError, match="free some space"):
        train_draft(config)
    assert {file.name: file.read_bytes() for file in config.out.iterdir()} == before


class TestLogs:
    """Verdict logs as data."""

    def log(self, folder: Path, vocabulary: bytes, prompt: tuple[int, ...] = ()) -> Path:
        log = VerdictLog(folder, "pictures")
        for number in range(8):
            log.add(LoggedAnswer(vocabulary, (5, 6, 7, 8 + number), (), 0.0, prompt))
        log.close()
        return folder

    def test_answers_are_learnt_with_as_much_of_the_prompt_as_was_kept(self, text_pair: Pair, tmp_path: Path) -> None:
        vocabulary = text_pair.draft.vocabulary_fingerprint
        bare = logged_texts([self.log(tmp_path / "a", vocabulary)], text_pair.draft, tmp_path, 64)
        whole = logged_texts([self.log(tmp_path / "b", vocabulary, (1, 2))], text_pair.draft, tmp_path, 64)
        assert len(bare) == len(whole) == 8
        assert (bare[0].ids, bare[0].start) == ((5, 6, 7, 8), 1)
        assert (whole[0].ids, whole[0].start) == ((1, 2, 5, 6, 7, 8), 2)
        learnt, kept = split(whole, 64, 0)
        assert len(kept) == 2 and not {text.ids for text in learnt} & {text.ids for text in kept}

    def test_what_a_former_target_said_is_not_learnt(self, text_pair: Pair, tmp_path: Path) -> None:
        vocabulary = text_pair.draft.vocabulary_fingerprint
        log = VerdictLog(tmp_path / "log")
        for number, target in enumerate([b"old", b"old", b"", b"old", b"new", b"new", b""]):
            log.add(LoggedAnswer(vocabulary, (5, 6, 7, 8 + number), target=target))
        log.close()
        learnt = logged_texts([tmp_path / "log"], text_pair.draft, tmp_path, 64)
        assert sorted(text.ids[-1] - 8 for text in learnt) == [2, 4, 5, 6]

    def test_a_log_of_another_vocabulary_is_refused(self, text_pair: Pair, tmp_path: Path) -> None:
        with pytest.raises(TrainingError, match="logged with another vocabulary"):
            logged_texts([self.log(tmp_path / "a", b"another!")], text_pair.draft, tmp_path, 64)
        with pytest.raises(TrainingError, match="must be a folder that"):
            logged_texts([tmp_path / "none"], text_pair.draft, tmp_path, 64)

    @pytest.mark.slow
    def test_a_draft_learns_from_a_log_alone(self, model_root: Path, text_pair: Pair, tmp_path: Path) -> None:
        folder = self.log(tmp_path / "log", text_pair.draft.vocabulary_fingerprint, (1, 2))
        sources = Sources(verdicts=(folder,))
        changed = {"target": "", "draft": str(model_root / "text-draft"), "sources": sources, "steps": 2}
        result = train_draft(little(model_root, tmp_path, **changed))
        assert result.after.answers == 2
        assert "verdicts that were logged" in (result.folder / "README.md").read_text(encoding="utf-8")


    def test_a_prompt_that_is_held_out_is_not_learnt_from_beside_a_log(
        self, model_root: Path, text_pair: Pair, tmp_path: Path
    ) -> None:
        folder, draft = self.log(tmp_path / "log", text_pair.draft.vocabulary_fingerprint, (1, 2)), text_pair.draft
        learnt, held_out = tmp_path / "learnt.txt", tmp_path / "held-out.txt"
        learnt.write_text("\n".join(WORDS[:3]))
        held_out.write_text(WORDS[0])
        sources = Sources(questions=(learnt,), held_out=(held_out,), verdicts=(folder,))
        config = little(model_root, tmp_path, sources=sources)
        config.run.mkdir()
        found = gather(config, draft, lambda done, total: None)
        assert [one.ids for one in found.prompts] == [one.ids for one in question_prompts(draft, WORDS[1:3], "")]
        assert len(found.held_out) == 1 and found.said


def test_a_target_is_asked_through_a_verifier(text_pair: Pair, servers: dict[str, str], model_root: Path) -> None:
    prompts = question_prompts(text_pair.draft, WORDS[:3], "words")
    here = DraftNetwork(str(model_root / "text-target")).answer(prompts, 10)
    with connect(servers[text_pair.target.path]) as link:
        there = RemoteTarget(link, text_pair.draft).answer(prompts, 10)
    assert [text.ids for text in there] == [text.ids for text in here]


@pytest.mark.parametrize(("ends", "learnt"), [({7, 9}, [4, 7]), ({2, 9}, [4, 2]), (set(), [4])])
def test_the_end_of_an_answer_is_one_that_ends_the_models_own(ends: set[int], learnt: list[int]) -> None:
    """A tokenizer may name another one, as that of Llama 3 does beside the end of a turn."""
    speaker = SimpleNamespace(eos_token_ids=frozenset(ends), tokenizer=SimpleNamespace(eos_token_id=2))
    target = RemoteTarget(None, cast(Any, speaker))
    target._decoder = cast(
        Any, SimpleNamespace(generate=lambda *given: iter([[4]]), stats=SimpleNamespace(finish="eos"))
    )
    (text,) = target.answer([ExitSample((1,), 1, (), "")], 4)
    assert list(text.ids[1:]) == learnt


def test_frames_of_a_bag_are_asked_about_with_the_instruction_of_the_time(tmp_path: Path) -> None:
    model = load_model(ROOT / "default_models" / "nav-draft")
    config = little(ROOT, tmp_path, length=96, new_tokens=32, sources=Sources(bags=(ROOT / "tests/data/rooms.mcap",)))
    found = gather(config, model, lambda done, total: None)
    assert found.prompts and found.held_out
    assert found.notes[0].startswith("rooms.mcap: ") and "0 skipped" in found.notes[0]
    assert found.notes[-1].startswith("rooms.mcap: 51 frames, ")
    assert all(len(prompt.images) == 1 and Path(prompt.images[0]).is_file() for prompt in found.prompts)
    words = model.tokenizer.decode(found.prompts[0].ids)
    assert "find the" in words
    with pytest.raises(TrainingError, match="no bag"):
        gather(replace(config, sources=Sources(bags=(tmp_path / "none",))), model, lambda done, total: None)
    two = MadeUp().say("find the lamp")
    for camera in ("/one/camera", "/two/camera"):
        two.frame(topic=camera)
    sources = Sources(bags=(two.save(tmp_path / "two"),))
    with pytest.raises(TrainingError, match="several image topics, give a bag with one of them: /one/camera"):
        gather(replace(config, sources=sources), model, lambda done, total: None)


def test_texts_come_in_pieces_and_what_is_no_text_is_named(text_pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three four five six seven eight nine ten " * 20, encoding="utf-8")
    pieces = read_texts(text_pair.draft, tmp_path, 32)
    assert pieces and all(16 <= len(piece.ids) <= 32 and piece.start == 1 for piece in pieces)
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TrainingError, match=r"b\.txt cannot be read as UTF-8"):
        read_texts(text_pair.draft, tmp_path, 32)


def test_layers_of_a_target_make_a_draft_that_begins_as_its_embeddings(text_pair: Pair, tmp_path: Path) -> None:
    folder = start_folder("layers:0,1", text_pair.target, tmp_path)
    made = load_model(folder)
    ids = torch.arange(5)
    assert torch.equal(made.runner.embed(ids), text_pair.target.runner.embed(ids))
    assert start_folder("elsewhere", text_pair.target, tmp_path) == "elsewhere"


def test_a_draft_of_a_targets_layers_is_kept_in_the_targets_number_type(tmp_path: Path) -> None:
    target = load_model(ROOT / "default_models" / "text-target")
    folder = start_folder("layers:0", target, tmp_path)
    assert kept_dtype(target.path) == kept_dtype(folder) == torch.float16


@pytest.mark.slow
def test_the_curve_shows_what_the_log_says_last(tmp_path: Path, charts: None) -> None:
    log = tmp_path / "draft.log"
    lines = [{"step": 25, "seconds": 1.0, "loss": 2.0}]
    taus = ((100, 2.0), (100, 2.1), (200, 2.4))
    lines += [{"step": s, "seconds": s / 10, "tau": tau, "agreement": 0.5} for s, tau in taus]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    points = read_curve(log)
    assert [(point.step, point.tau) for point in points] == [(100, 2.1), (200, 2.4)]
    write_curve(tmp_path, points, 4)
    assert "2.40" in (tmp_path / "acceptance.svg").read_text(encoding="utf-8")
    assert draw_curve([AcceptancePoint(0, 0.0, 1.0, 0.1)], 4).rstrip().endswith("</svg>")


def test_composed_requests_are_the_same_for_a_seed_and_never_unfilled() -> None:
    made = [ordinary_request(random.Random(seed)) for seed in range(300)]
    assert made == [ordinary_request(random.Random(seed)) for seed in range(300)]
    assert len(set(made)) > 250 and not any("{" in text for text in made)


def test_requests_about_installed_packages_are_the_same_for_a_seed(tmp_path: Path) -> None:
    code = ROOT / "specnav" / "recipes" / "corpus.py"
    for package in ("one", "two", "tests"):
        (tmp_path / package / "tests").mkdir(parents=True)
        (tmp_path / package / "part.py").write_bytes(code.read_bytes())
        (tmp_path / package / "tests" / "test_part.py").write_text('"""Not a word of this is to be read by anyone."""')
    (tmp_path / "one" / "broken.py").write_bytes(b"\xff\xfe")
    reading = read_packages(9, tmp_path)
    assert len(reading.talks) > 10 and any("standard library" in text for text in reading.prose)
    assert len(set(reading.prose)) == len(reading.prose) and not any("Not a word" in text for text in reading.prose)
    made = [request(reading, random.Random(seed)) for seed in range(60)]
    again = read_packages(9, tmp_path)
    assert made == [request(again, random.Random(seed)) for seed in range(60)]
    assert len(set(made)) > 30 and any("def " in text for text in made) and any("Summarise" in text for text in made)
    nothing = read_packages(9, tmp_path / "one" / "tests")
    assert not nothing.prose and not nothing.talks


def test_no_more_packages_are_read_than_asked_for_and_each_file_is_told(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"package{number}").mkdir()
        (tmp_path / f"package{number}" / "part.py").write_text(f'"""Words of part {number}. {"More words. " * 20}"""')
    told = []
    reading = read_packages(3, tmp_path, progress=lambda done, total: told.append((done, total)))
    assert len(reading.prose) == 3 and told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("tiles", "parameters", "expected"), [(True, 135e6, "bfloat16"), (True, 3e6, "auto"), (False, 135e6, "auto")]
)
def test_a_large_target_speaks_in_half_precision_where_the_cpu_has_tiles(
    monkeypatch: pytest.MonkeyPatch, tiles: bool, parameters: float, expected: str
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles, raising=False)
    assert number_type(Mock(parameter_count=int(parameters))) == expected


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_answers_are_the_same_however_many_processes_write_them_and_none_is_written_twice(
    model_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr("specnav.recipes.drafts.writing.SHARD", 2)
    target = DraftNetwork(str(model_root / "text-target"), dtype=dtype)
    prompts = question_prompts(target.loaded, WORDS, "words")
    found = []
    for workers in (1, 2):
        run = tmp_path / str(workers)
        run.mkdir()
        seen: list[int] = []
        texts = write_answers(target, prompts, 6, 0, run, workers, lambda done, _, seen=seen: seen.append(done))
        found.append([(text.ids, text.start) for text in texts])
        assert seen[-1] == 6 and sorted(file.name for file in run.iterdir())[-1] == "texts-0002.jsonl"
    assert found[0] == found[1]
    (tmp_path / "1" / "texts-0001.jsonl").unlink()
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "1").iterdir()}
    again = write_answers(target, prompts, 6, 0, tmp_path / "1", 1, lambda done, total: None)
    assert [(text.ids, text.start) for text in again] == found[0]
    assert all(file.stat().st_mtime_ns == when for file, when in kept.items())
