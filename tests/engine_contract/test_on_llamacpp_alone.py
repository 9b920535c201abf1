"""What only the engine on llama.cpp has: sequences that run out, a context of one size, and files of models."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import torch

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.work import Models
from cloud_verifier.errors import VerifierError
from cloud_verifier.loading import check_pair
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import ModelError
from specdec.link.wire import LACKS_SPLIT, VerdictDown
from specdec.models import LoadedModel, Prompt
from specdec.models.gguf import binding
from specdec.models.gguf.model import GgufModel
from specdec.models.local import generate_local
from specdec.models.plans import Prepared
from specdec.models.session import SessionCursor
from specdec.options import GenerationOptions
from tests.engine_contract.contract import (
    GREEDY,
    SAMPLED,
    SETTINGS,
    Client,
    answer_of,
    check_answers_together,
    prompt_of,
    wrong,
)
from tests.helpers import drafts
from tests.helpers.servers import Pair, patiently_connected

TargetOf = Callable[..., GgufModel]


@pytest.fixture(autouse=True)
def only_on_llamacpp(engine_name: str) -> None:
    if engine_name != "llamacpp":
        pytest.skip("of the engine on llama.cpp: make test-gguf")


@pytest.fixture
def target_of() -> TargetOf:
    from tests.engine_contract.llamacpp_engines import target_of

    return target_of


def client_of(model: GgufModel) -> Client:
    return Client(own_engine(Policy(), Models(model), kv_bytes=model.cache_bytes))


def load(path: Path, log: StringIO | None = None, **settings: object) -> GgufModel:
    from cloud_verifier.engine_llamacpp.target import load_target

    told = {"kv_type": "f32", "threads": 1, "kv_gb": 0.05} | settings
    config = ServerConfig(str(path), engine="llamacpp", **told)  # type: ignore[arg-type]
    return load_target(config, EventLog(log or StringIO()))


def star(right: int, count: int) -> list[int]:
    """This many siblings, one of which is right."""
    others = [token for token in range(30, 30 + count) if token != right]
    return [*others[: count - 1], right]


def test_it_tells_that_it_has_no_exits_and_no_split(client: Client) -> None:
    assert client.engine.can.lacks == [LACKS_SPLIT] and not client.engine.can.exits


def test_trees_of_more_branches_than_there_are_sequences_take_several_forwards(
    target: LoadedModel, target_of: TargetOf
) -> None:
    client = client_of(target_of(target.path, max_sessions=200))
    right = {session: answer_of(target, prompt_of(session), GREEDY) for session in range(1, 13)}
    for session in right:
        client.opened(session, prompt_of(session))
    before = client.engine.load.forwards
    for session, said in right.items():
        client.draft(session, 1, [*star(said[1], 40), said[2]], parents=[-1] * 40 + [39])
    client.work()
    assert client.engine.load.forwards - before > 1
    for session, said in right.items():
        verdict = client.last(session)
        assert isinstance(verdict, VerdictDown) and (verdict.last, verdict.token) == (41, said[3]), session
        client.draft(session, 4, [wrong(said[4])])  # a chain behind a tree is judged as ever
    client.work()
    for session, said in right.items():
        assert client.last(session).token == said[4]  # type: ignore[union-attr]
    client.engine.stop()


def test_of_a_tree_with_too_many_branches_the_first_count(target: LoadedModel, target_of: TargetOf) -> None:
    model = target_of(target.path, max_sessions=200)
    client, right = client_of(model), answer_of(target, prompt_of(1), SAMPLED)
    client.opened(1, prompt_of(1), SAMPLED)
    spare = model.new_session().most_branches
    client.draft(1, 1, star(right[1], spare + 20), parents=[-1] * (spare + 20))
    client.work()
    verdict = client.last(1)
    assert isinstance(verdict, VerdictDown) and (verdict.last, verdict.token) == (0, right[1])
    assert client.verdict(1, 2, right[2:5], epoch=1).token == right[5]
    client.engine.stop()


def test_what_the_context_cannot_hold_at_once_it_holds_in_turns(
    target: LoadedModel, target_of: TargetOf
) -> None:
    client = client_of(target_of(target.path, kv_gb=0.0055, forward_rows=64, max_sessions=32))
    settings = list(SETTINGS.values())
    kinds = {}
    for number in range(8):
        prompt = Prompt(tuple(30 + (number * 3 + place * place) % 60 for place in range(150)))
        kinds[number + 1] = (prompt, settings[number % len(settings)])
    for session, kind in kinds.items():
        client.opened(session, *kind)
    for at in (1, 6):
        for session, kind in kinds.items():
            right = answer_of(target, *kind)
            assert client.verdict(session, at, right[at : at + 4]).token == right[at + 4]
    assert client.engine.counters()["kv_evictions"] > 0
    client.open(20, Prompt((40,) * 400), GenerationOptions(100))
    client.work()
    assert not isinstance(client.last(20), VerdictDown)
    client.engine.stop()


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "f32", "auto"])
def test_keys_and_values_take_no_more_than_they_may(
    target: LoadedModel, target_of: TargetOf, kv_type: str
) -> None:
    from cloud_verifier.engine_llamacpp.target import bytes_a_token
    from specdec.models.gguf.options import GgufOptions

    model = target_of(target.path, kv_type=kv_type, kv_gb=0.01)
    options = GgufOptions(kv={"auto": "q8_0"}.get(kv_type, kv_type))
    cells = model._decoder.cells
    assert 0 < cells * bytes_a_token(model._llama, options, model._decoder.sizes.batch) <= 0.01 * 2**30
    client, right = client_of(model), answer_of(model, prompt_of(2), GREEDY)
    client.opened(2, prompt_of(2))
    assert client.verdict(2, 1, right[1:6]).last == 5
    client.engine.stop()


@pytest.mark.parametrize("kind", ["q4_0", "q8_0"])
def test_as_it_is_served_by_default_answers_are_the_targets_own_bit_for_bit(
    target: LoadedModel, kind: str
) -> None:
    """Of quantised weights drafts and sessions beside one another change no logit: no answer leaves at a near-tie."""
    model = load(drafts.gguf_of(Path(target.path), kind), kv_type="auto")
    client, settings = client_of(model), list(SETTINGS.values())
    kinds = {session: (prompt_of(session), settings[session % len(settings)]) for session in range(1, 9)}
    assert check_answers_together(client, model, kinds) == len(kinds)
    client.engine.stop()
    long = model.new_session()
    whole = long.prefill(model.encode(Prompt(tuple(30 + place % 50 for place in range(200)))))
    parts = model.new_session()
    parts.prefill(model.encode(Prompt(tuple(30 + place % 50 for place in range(130)))))
    assert torch.equal(parts.extend([30 + place % 50 for place in range(130, 200)])[-1], whole)


def test_a_branch_that_was_right_leaves_no_trace_in_later_logits(target: LoadedModel) -> None:
    """The cells of the wrong branches before it are free then, and what is said next must not lie in them: attention
    sums in the order of the cells.
    """
    model = load(drafts.gguf_of(Path(target.path), "q4_0"), kv_type="auto")
    prompt = Prepared(model.encode(prompt_of(1)))
    said = [30 + (7 * place) % 50 for place in range(90)]  # whatever it would say itself
    drafted, stepping = (SessionCursor(model.new_session()) for _ in range(2))
    for cursor in (drafted, stepping):
        cursor.prefill(prompt)
    for place in range(1, 85, 3):  # behind three wrong siblings, two levels that are right
        ids, parents = [81, 82, 83, said[place], said[place + 1]], [-1, -1, -1, -1, 3]
        rows = drafted.tree_rows(said[:place], ids, parents)[[0, 4, 5]]
        expected = [stepping.rows(said[:count])[0] for count in range(place, place + 3)]
        assert torch.equal(rows, torch.stack(expected))


def test_no_room_for_anything_is_one_line(target: LoadedModel) -> None:
    path = drafts.gguf_of(Path(target.path))
    with pytest.raises(VerifierError, match=r"--kv-gb must leave room for 256 tokens") as told:
        load(path, kv_gb=0.0001)
    assert "\n" not in str(told.value)
    with pytest.raises(VerifierError, match=r"--max-sessions must be below 256"):
        load(path, max_sessions=256)


def test_more_memory_than_is_free_is_refused_before_llama_cpp_takes_it(target: LoadedModel) -> None:
    from cloud_verifier.engine_llamacpp.target import bytes_a_token, fit
    from specdec.models.gguf.binding import LlamaModel
    from specdec.models.gguf.options import GgufOptions

    path, options = drafts.gguf_of(Path(target.path)), GgufOptions(kv="f16")
    model = LlamaModel(Path(path))

    def tokens(free: int, **settings: float) -> int:
        config = ServerConfig(str(path), engine="llamacpp", **settings)  # type: ignore[arg-type]
        found, sizes = fit(config, options, model, lambda: free)
        assert found * bytes_a_token(model, options, sizes.batch) <= free
        return found

    with pytest.raises(
        VerifierError, match=r"--kv-gb 0.5: llama.cpp would take 0.5 GiB .* 0.2 GiB are free"
    ) as told:
        tokens(2**28, kv_gb=0.5)
    assert "\n" not in str(told.value)
    assert tokens(2**30, kv_gb=0.5) > 0 and tokens(2**28) > 0


def test_layers_for_a_gpu_that_is_not_there_are_told(target: LoadedModel) -> None:
    log = StringIO()
    load(drafts.gguf_of(Path(target.path)), log, gpu_layers=5)
    assert '"no_gpu"' in log.getvalue() and "--gpu-layers 5" in log.getvalue()
    log = StringIO()
    load(drafts.gguf_of(Path(target.path)), log)
    assert '"no_gpu"' not in log.getvalue()


def test_a_file_that_changes_on_disk_changes_no_answer(target: LoadedModel, tmp_path: Path) -> None:
    path = tmp_path / "served.gguf"
    shutil.copy(drafts.gguf_of(Path(target.path)), path)
    client = client_of(load(path))
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    with path.open("r+b") as file:
        file.write(data)
    right = answer_of(target, prompt_of(3), GREEDY)
    client.opened(3, prompt_of(3))
    assert client.verdict(3, 1, right[1:6]).last == 5
    client.engine.stop()


def test_a_file_that_changes_as_it_is_loaded_is_refused(
    target: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter([(1, 1, 1), (1, 2, 2)])
    monkeypatch.setattr(binding, "state_of", lambda _: next(states))
    with pytest.raises(ModelError, match="changed while it was loaded") as told:
        load(drafts.gguf_of(Path(target.path)))
    assert "\n" not in str(told.value)


def test_edges_are_told_which_weights_it_has_and_how_keys_are_kept(
    text_pair: Pair, target_of: TargetOf, tmp_path: Path
) -> None:
    path = shutil.copy(drafts.gguf_of(Path(text_pair.target.path)), tmp_path / "another.gguf")
    served = target_of(text_pair.target.path)
    assert served.weights_digest == load(path).weights_digest
    others = [load(path, kv_type="q8_0"), load(drafts.gguf_of(Path(text_pair.draft.path)))]
    assert len({one.weights_digest for one in (served, *others)}) == 3
    config = ServerConfig(served.path, bind="tcp://127.0.0.1:0")
    server = Server(config, served, EventLog(StringIO()), own_engine(Policy(), Models(served)))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        with patiently_connected(server.bind) as link:
            welcome = link.ensure_connected()
            decoder = EdgeDecoder(link, text_pair.draft, "auto")
            said = [token for ids in decoder.generate(prompt_of(6), GREEDY) for token in ids]
    finally:
        server.stop()
        thread.join(30)
    assert welcome.weights == served.weights_digest and welcome.lacks == [LACKS_SPLIT]
    assert said == generate_local(text_pair.target, prompt_of(6), GREEDY)


def split(source: Path, folder: Path, parts: int) -> list[Path]:
    """The same model in several files, as llama.cpp's gguf-split writes them: with all the metadata in the first."""
    names = [folder / f"model-{part:05d}-of-{parts:05d}.gguf" for part in range(1, parts + 1)]
    import gguf  # vLLM's environment has none

    reader = gguf.GGUFReader(source)
    per_part = -(-len(reader.tensors) // parts)
    for number, name in enumerate(names):
        writer = gguf.GGUFWriter(name, "llama")
        if number == 0:
            for key, field in reader.fields.items():
                if not key.startswith("GGUF.") and key != "general.architecture":
                    sub_type = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
                    writer.add_key_value(key, field.contents(), field.types[0], sub_type)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", parts)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in reader.tensors[number * per_part : (number + 1) * per_part]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return names


def test_a_model_in_several_files_is_served_by_its_first_and_whole_alone(
    target: LoadedModel, tmp_path: Path
) -> None:
    first, second, third = split(drafts.gguf_of(Path(target.path)), tmp_path, 3)
    model = load(first)
    right = answer_of(target, prompt_of(1), GREEDY)
    assert answer_of(model, prompt_of(1), GREEDY) == right
    for kv_type in ("f32", "auto"):
        with pytest.raises(ModelError, match=r"is part 2 of 3: name the first, .*-00001-of-00003\.gguf"):
            load(second, kv_type=kv_type)
    beyond = shutil.copy(first, tmp_path / "model-00004-of-00003.gguf")
    with pytest.raises(ModelError, match="named as a part that does not exist"):
        load(beyond)
    third.unlink()
    with pytest.raises(
        ModelError, match=r"-00003-of-00003\.gguf is not beside it: copy all parts there"
    ) as told:
        load(first)
    assert "\n" not in str(told.value)


def without_template(source: Path, goal: Path) -> Path:
    """The same file, its template under another key."""
    data = source.read_bytes()
    assert b"tokenizer.chat_template" in data
    goal.write_bytes(data.replace(b"tokenizer.chat_template", b"tokenizer.chat_templatX", 1))
    return goal


def test_a_file_without_a_chat_template_is_served_with_a_warning(target: LoadedModel, tmp_path: Path) -> None:
    log = StringIO()
    model = load(without_template(drafts.gguf_of(Path(target.path)), tmp_path / "plain.gguf"), log)
    (warning,) = [line for line in log.getvalue().splitlines() if "no_chat_template" in line]
    assert "plain.gguf" in warning
    assert answer_of(model, prompt_of(1), GREEDY) == answer_of(target, prompt_of(1), GREEDY)


def test_vocabularies_that_differ_in_an_added_token_alone_are_told_apart(
    text_pair: Pair, tmp_path: Path
) -> None:
    folder = shutil.copytree(text_pair.draft.path, tmp_path / "draft")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("<|video_pad|>", "<|tool_call|>"))
    from specdec.models import load_model

    model = load(drafts.gguf_of(Path(text_pair.target.path)))
    with pytest.raises(
        VerifierError, match=r"token \d+ is '<\|tool_call\|>' in .* and '<\|video_pad\|>'"
    ) as told:
        check_pair(load_model(folder), model)
    assert "\n" not in str(told.value)


def test_a_prompt_beyond_what_the_model_was_made_for_is_refused_in_a_line(
    client: Client, target: LoadedModel
) -> None:
    client.open(1, Prompt((40,) * (target.context_limit + 1)))
    client.work()
    refused = client.refused(1)
    assert refused.code == "refused" and f"takes {target.context_limit}" in refused.message


@pytest.mark.parametrize(
    ("flag", "settings"),
    [
        ("--quantize", {"quantize": "4bit"}),
        ("--exits", {"exits": "somewhere"}),
        ("--compile", {"compile": True}),
    ],
)
def test_what_it_does_not_do_is_refused_before_anything_is_loaded(
    flag: str, settings: dict[str, object]
) -> None:
    with pytest.raises(VerifierError, match=f"llamacpp does not take {flag}"):
        load(Path("nowhere.gguf"), **settings)
    with pytest.raises(VerifierError, match="needs a GGUF file, got"):
        load(Path("org/name"))
    with pytest.raises(VerifierError, match="kv_type is for the engine llamacpp"):
        ServerConfig("m", kv_type="q8_0")
