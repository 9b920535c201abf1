"""The paths of a GPU, on a CPU: answers in bulk, the loss in chunks, rows on the device, a schedule by time."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from transformers import AutoTokenizer

from specdec.models.prompt import chat_prompt, chat_prompts
from specnav.recipes.drafts.bulk import BulkOptions, bulk_answers
from specnav.recipes.drafts.config import Sources
from specnav.recipes.drafts.data.self_asked import self_asked
from specnav.recipes.drafts.data.sources import question_prompts
from specnav.recipes.drafts.gpu_task import GpuDistilTask, chunked_distance, distil_task, trains_on_device
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.drafts.packing import pack_all
from specnav.recipes.drafts.task import DistilTask
from specnav.recipes.drafts.train import train_draft
from specnav.recipes.drafts.writing import write_answers
from specnav.recipes.errors import TrainingError
from specnav.recipes.loop import LoopSettings, _run, read_checkpoint, schedule
from specnav.recipes.samples import ExitSample
from tests.training.test_drafts import little
from tests.training.words import WORDS, distil_spec


@pytest.mark.slow
@pytest.mark.parametrize("slots", [3, 64])
def test_greedy_answers_in_bulk_are_those_written_one_group_after_the_other(model_root: Path, slots: int) -> None:
    target = DraftNetwork(str(model_root / "text-target"))
    prompts = question_prompts(target.loaded, [*WORDS, "a " * 70, *WORDS[:4]], "words")
    expected = [text.ids[text.start :] for text in target.answer(prompts, 14)]
    # An end that some answers meet: slots are then filled again at different times.
    end = expected[0][5]
    ends = target.loaded.eos_token_ids | {end}
    options = BulkOptions(14, ends, target.loaded.never_drafted)
    before = target.module.config._attn_implementation
    found = bulk_answers(target.module, target.vocabulary, [one.ids for one in prompts], options, slots=slots)
    assert target.module.config._attn_implementation == before
    assert found == [list(one[: one.index(end) + 1] if end in one else one) for one in expected]
    assert len({len(one) for one in found}) > 1


FAILURES = [
    ("_attend", NotImplementedError("no such attention\nhere")),
    ("_Batch._step", torch.OutOfMemoryError("CUDA out of memory")),
]


@pytest.mark.parametrize(("part", "error"), FAILURES)
def test_answers_that_fail_in_bulk_are_written_as_others_with_one_line(
    model_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: str,
    error: Exception,
) -> None:
    target = DraftNetwork(str(model_root / "text-target"))
    assert not target.answers_in_bulk
    prompts = question_prompts(target.loaded, WORDS, "words")
    expected = target.answer(prompts, 9)
    before = target.module.config._attn_implementation
    monkeypatch.setattr(f"specnav.recipes.drafts.bulk.{part}", Mock(side_effect=error))
    target.answers_in_bulk = True
    assert write_answers(target, prompts, 9, 0, tmp_path, 1, lambda done, total: None) == expected
    assert not target.answers_in_bulk and target.module.config._attn_implementation == before
    assert target.answer(prompts, 9) == expected
    (line,) = [record.getMessage() for record in caplog.records if "in bulk" in record.getMessage()]
    assert str(error).splitlines()[0] in line and "here" not in line
    # The next sitting answers one group after the other from the start, and takes no shard of another size for its own.
    assert write_answers(target, prompts[:2], 9, 0, tmp_path, 1, lambda done, total: None) == expected[:2]


@pytest.mark.slow
def test_sampled_answers_in_bulk_follow_the_targets_distribution(model_root: Path) -> None:
    target = DraftNetwork(str(model_root / "text-target"))
    prompt = question_prompts(target.loaded, WORDS[:1], "words")[0]
    options = BulkOptions(2, frozenset(), target.loaded.never_drafted, temperature=0.5, min_p=0.3, seed=3)
    said = bulk_answers(target.module, target.vocabulary, [prompt.ids] * 2000, options)
    again, once_more = (bulk_answers(target.module, target.vocabulary, [prompt.ids] * 50, options) for _ in range(2))
    assert again == once_more
    for place, prefix in enumerate([(), (said[0][0],)]):
        with torch.no_grad():
            ids = torch.tensor([[*prompt.ids, *prefix]])
            scores = target.logits(ids, torch.arange(ids.shape[1])[None])[0, -1]
        scores[list(target.loaded.never_drafted)] = float("-inf")
        chances = (scores / 0.5).softmax(-1)
        chances = chances * (chances >= 0.3 * chances.max())
        chances /= chances.sum()
        heard = [one[place] for one in said if tuple(one[:place]) == prefix]
        counts = torch.bincount(torch.tensor(heard), minlength=len(chances))[: len(chances)]
        assert not counts[chances == 0].any()
        expected, likely = chances * len(heard), chances > 0
        assert int(likely.sum()) > 1
        square = float((((counts - expected) ** 2)[likely] / expected[likely]).sum())
        freedom = int(likely.sum()) - 1
        assert square < freedom + 6 * (2 * freedom) ** 0.5 + 12  # far beyond chance


@pytest.mark.parametrize(("hard", "reverse"), [(0.4, 0.0), (0.0, 1.0), (0.5, 0.25), (1.0, 0.0)])
def test_the_loss_in_chunks_and_its_gradients_are_those_of_the_plain_loss(
    monkeypatch: pytest.MonkeyPatch, hard: float, reverse: float
) -> None:
    monkeypatch.setattr("specnav.recipes.drafts.gpu_task.PLACES", 7)
    torch.manual_seed(0)
    hidden, taught = torch.randn(20, 12), torch.randn(20, 16)
    head, target_head = torch.randn(50, 12), torch.randn(50, 16)
    results = []
    for chunks in (True, False):
        mine, own = hidden.clone().requires_grad_(), head.clone().requires_grad_()
        if chunks:
            loss, agrees, apart = chunked_distance(mine, own, taught, target_head, hard, reverse)
        else:
            p, q = (taught @ target_head.T).softmax(-1), (mine @ own.T).softmax(-1)
            best = p.argmax(-1)
            apart = (p * (p / q).log()).sum(-1).mean()
            back = (q * (q / p).log()).sum(-1).mean()
            sure = -q.log()[torch.arange(20), best].mean()
            loss = (1 - hard) * ((1 - reverse) * apart + reverse * back) + hard * sure
            agrees = (q.argmax(-1) == best).float().mean()
        (loss * 3).backward()
        results.append([loss, agrees, apart, mine.grad, own.grad])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_rows_hold_every_text_once_and_none_sees_another(task: GpuDistilTask) -> None:
    texts = [ExitSample(tuple(range(at, at + count)), 2) for at, count in ((0, 30), (40, 17), (60, 17), (80, 9))]
    packed = pack_all(texts, 32)
    assert len(packed.ids) == 3
    told = {
        tuple(packed.ids[row][packed.text[row] == which].tolist())
        for row in range(3)
        for which in range(int(packed.text[row].max()) + 1)
    }
    assert told == {text.ids[:-1] for text in texts}
    assert int(packed.learn.sum()) == sum(len(text.ids) - text.start for text in texts)
    # What the target makes of a packed text is what it makes of the text alone.
    rows = task.batch(torch.Generator(), len(task.ids))[0]
    row = int(rows[0])
    for which in range(int(task.text[row].max()) + 1):
        place = task.text[row] == which
        ids = task.ids[row][place].long()[None]
        with torch.no_grad():
            alone = task.target.module.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[0]
        torch.testing.assert_close(task._taught[row][place], alone, rtol=1e-3, atol=1e-3)


@pytest.fixture
def task(model_root: Path, tmp_path: Path) -> GpuDistilTask:
    """A draft that shares its first layer with the text pair's target, about to learn from it."""
    start = str(_start(model_root, tmp_path))
    return GpuDistilTask(distil_spec(tmp_path, model_root / "text-target", start, 0.0, 0.0, 0.0), "cpu")


def _start(model_root: Path, tmp_path: Path, layers: str = "0,2") -> Path:
    from specdec.models import load_model
    from specnav.recipes.drafts.start import start_folder

    target = load_model(model_root / "text-target")
    return Path(start_folder(f"layers:{layers}", target, tmp_path, share=True, learn="2"))


def test_only_the_targets_first_layers_give_kept_states(model_root: Path, tmp_path: Path) -> None:
    """A draft that begins with the target's second layer has other states behind it than the target."""
    start = str(_start(model_root, tmp_path, "1,2"))
    task = GpuDistilTask(distil_spec(tmp_path, model_root / "text-target", start, 0.0, 0.0, 0.0), "cpu")
    assert task.frozen == 0


def test_the_loss_of_kept_states_is_that_of_both_whole_models(task: GpuDistilTask) -> None:
    assert task.frozen == 1
    (rows,) = task.batch(torch.Generator(), 2)
    loss, _ = task.loss(rows)
    log_p, log_q = [], []
    for row in rows.tolist():
        for which in range(int(task.text[row].max()) + 1):
            place = task.text[row] == which
            ids, learn = task.ids[row][place].long()[None], task.learn[row][place]
            positions = torch.arange(ids.shape[1])[None]
            for network, into in ((task.target, log_p), (task.draft, log_q)):
                into.append(network.logits(ids, positions)[0].log_softmax(-1)[learn])
    p, q = torch.cat(log_p).detach(), torch.cat(log_q)
    apart = (p.exp() * (p - q)).sum(-1).mean()
    sure = -q.gather(-1, p.argmax(-1, keepdim=True)).mean()
    torch.testing.assert_close(loss, 0.5 * apart + 0.5 * sure, rtol=1e-3, atol=1e-4)
    loss.backward()
    grads = {name: one.grad.clone() for name, one in task.model.named_parameters() if one.grad is not None}
    assert grads and not any("layers.0." in name or "embed" in name for name in grads)
    task.model.zero_grad()
    (0.5 * apart + 0.5 * sure).backward()
    for name, one in task.model.named_parameters():
        if name in grads:
            torch.testing.assert_close(grads[name], one.grad, rtol=1e-2, atol=1e-4)


@pytest.mark.slow
def test_a_lesson_that_fails_is_learnt_on_the_path_of_a_cpu_with_one_line(
    task: GpuDistilTask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Mock(side_effect=NotImplementedError("no such kernel"))
    monkeypatch.setattr("specnav.recipes.drafts.gpu_task.chunked_distance", failing)
    other = distil_task(task.spec, "cpu")
    assert isinstance(other, DistilTask)
    loss, _ = other.loss(*other.batch(torch.Generator().manual_seed(0), 2))
    assert loss.isfinite()
    (line,) = [record.getMessage() for record in caplog.records if "slower path made for CPUs" in record.getMessage()]
    assert "no such kernel" in line


@pytest.mark.slow
def test_a_task_that_was_tried_out_is_as_it_was(task: GpuDistilTask) -> None:
    tried = distil_task(task.spec, "cpu")
    assert isinstance(tried, GpuDistilTask)
    assert all(weight.grad is None for weight in tried.model.parameters())
    for _ in range(3):
        (rows,), (others,) = (one.batch(torch.Generator(), 2) for one in (task, tried))
        assert torch.equal(rows, others)
        assert torch.equal(task.loss(rows)[0], tried.loss(others)[0])


def test_states_that_do_not_fit_are_worked_out_again(task: GpuDistilTask) -> None:
    (rows,) = task.batch(torch.Generator(), len(task.ids))
    whole = float(task.loss(rows)[0].detach())
    task._taught, task._begun = task._taught[:1], task._begun[:1]
    assert float(task.loss(rows)[0].detach()) == pytest.approx(whole, rel=1e-4)


def test_every_epoch_has_each_row_once_and_a_run_that_goes_on_draws_what_it_would_have(task: GpuDistilTask) -> None:
    task.ids = task.ids[:1].expand(7, -1)
    task._known = torch.ones(7, dtype=torch.bool)
    drawn = [task.batch(torch.Generator(), 2)[0].tolist() for _ in range(9)]
    for epoch in range(3):
        assert len({row for batch in drawn[3 * epoch : 3 * epoch + 3] for row in batch}) == 6
    assert sorted(drawn[:3]) != sorted(drawn[3:6])
    task.goes_on(4)
    assert [task.batch(torch.Generator(), 2)[0].tolist() for _ in range(5)] == drawn[4:]


@pytest.mark.slow
def test_a_run_by_time_ends_at_the_schedules_floor_and_keeps_checkpoints_by_time(
    task: GpuDistilTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("specnav.recipes.loop.WARMUP", 20)
    monkeypatch.setattr("specnav.recipes.loop.time.monotonic", lambda: now[0])
    batch = task.batch
    monkeypatch.setattr(task, "batch", lambda *given: (now.__setitem__(0, now[0] + 1.0), batch(*given))[1])
    rates: list[float] = []
    from specnav.recipes.optimiser import MuonAdamW

    step = MuonAdamW.step
    monkeypatch.setattr(MuonAdamW, "step", lambda self, lr: (rates.append(lr), step(self, lr))[1])
    kept = Mock(wraps=torch.save)
    monkeypatch.setattr("specnav.recipes.loop.torch.save", kept)
    settings = LoopSettings("draft", tmp_path, 10_000, 2, 1.0, 0, 60 / 60, checkpoint_s=18.0, compile=False)
    steps = _run(task, settings, 0, 1, "cpu", Mock())
    assert steps == 61 and kept.call_count == 4
    assert rates[-1] == pytest.approx(schedule(1.0, steps), rel=1e-6) == pytest.approx(0.02)
    assert rates[30] == pytest.approx(0.51, abs=0.02)
    assert read_checkpoint(settings.checkpoint)["finished"]


@pytest.mark.slow
def test_a_whole_run_with_the_paths_of_a_gpu_goes_on_where_it_was(
    model_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specnav.recipes.drafts.train.on_gpu", lambda: True)
    config = little(
        model_root, tmp_path, draft="layers:0,2", share=True, learn="2", on_policy=0.0, reverse=0.0, steps=3
    )
    result = train_draft(config)
    assert not list(config.run.glob("lessons*"))  # nothing is listed on the host
    card = (result.folder / "README.md").read_text(encoding="utf-8")
    assert "rows of 48 tokens" in card
    whole = (result.folder / "model.safetensors").read_bytes()
    # A checkpoint that says it is not finished: the run trains on, and ends with the same answers measured.
    file = config.run / "draft.ckpt"
    kept = read_checkpoint(file)
    torch.save({**kept, "finished": False}, file)
    again = train_draft(dataclasses.replace(config, steps=5))
    steps = [json.loads(line)["step"] for line in (config.run / "draft.log").read_text().splitlines()]
    assert steps == [3, 5] and again.after.answers == result.after.answers
    assert (result.folder / "model.safetensors").read_bytes() != whole


def test_what_the_paths_of_a_gpu_cannot_take_stays_with_the_others(task: GpuDistilTask) -> None:
    assert trains_on_device(task.config, task.draft)
    for changed in ({"on_policy": 0.5}, {"tokens": 100}, {"target": ""}):
        assert not trains_on_device(dataclasses.replace(task.config, **changed), task.draft)


def test_requests_that_a_target_makes_up_are_different_and_whole() -> None:
    class Model:
        """Says what it is told to."""

        def __init__(self) -> None:
            folder = Path(__file__).resolve().parents[2] / "default_models" / "text-target"
            self.loaded = Mock(tokenizer=AutoTokenizer.from_pretrained(folder), path="here")
            self.loaded.tokenizer.chat_template = "{% for m in messages %}User: {{ m['content'] }}\nAI:{% endfor %}"
            self.loaded.eos_token_ids = frozenset({1})
            self.asked: list[str] = []

        def answer(self, prompts: list, new_tokens: int, temperature: float, *_: object) -> list[ExitSample]:
            self.asked = [self.loaded.tokenizer.decode(prompts[0].ids)]
            assert temperature == 1.0 and new_tokens == 30
            said = ["open a file in Python", "open a  File in python", "hi", "every line of it", "another one of them"]
            texts = []
            for number, (prompt, words) in enumerate(zip(prompts, said, strict=False)):
                ids = self.loaded.tokenizer(words, add_special_tokens=False)["input_ids"]
                ends = (1,) if number != 3 else ()
                texts.append(ExitSample((*prompt.ids, *ids, *ends), len(prompt.ids)))
            return texts

    model = Model()
    found = self_asked(model, 4, 30, 0, lambda done, total: None)
    assert found == ["open a file in Python", "another one of them"]
    assert model.asked == ["User: "]
    model.loaded.tokenizer.chat_template = None
    with pytest.raises(TrainingError, match="no chat template"):
        self_asked(model, 4, 30, 0, lambda done, total: None)


def test_self_asked_needs_an_assistants_target(model_root: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="--self-asked needs"):
        train_draft(little(model_root, tmp_path, sources=Sources(self_asked=0.5)))


def test_many_chat_prompts_are_those_made_one_by_one(model_root: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_root / "text-target")
    texts = [*WORDS, " spaces ", "two\n\nlines\n", f"a special token {tokenizer.all_special_tokens[0]} in it", "0123"]
    for template in (
        None,
        "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }}\n{% endfor %}<assistant>",
        "{% for m in messages %}{{ m['content'] | trim }}!{% endfor %}",
    ):
        tokenizer.chat_template = template
        assert chat_prompts(tokenizer, texts) == [chat_prompt(tokenizer, text) for text in texts]
