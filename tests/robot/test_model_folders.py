"""Where a model lies, what kind it is, and a node that is there and answers while its model is being loaded."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.model import folders
from spec_vlm_nav.model.course import RoundHistory
from spec_vlm_nav.model.decider import DecisionFailed, DecoderSettings, LinkReport, ModelAnswer
from spec_vlm_nav.model.deferred import OF_LOADING, DeferredDecider
from spec_vlm_nav.model.folders import check_folder, find_model, read_config, share_folder, suited_preset

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def share(tmp_path, monkeypatch):
    """The package's share folder, and beside it a working directory."""
    found, cwd = tmp_path / "share", tmp_path / "cwd"
    found.mkdir()
    cwd.mkdir()
    monkeypatch.setattr(folders, "share_folder", lambda: found)
    monkeypatch.chdir(cwd)
    return found


def refusal(name):
    with pytest.raises(ParameterError) as error:
        find_model(name)
    assert "\n" not in str(error.value)
    return str(error.value)


# -- where it lies


@pytest.mark.parametrize("name", ["default_models/nav-draft", "mine", "a/b/c", "org/name"])
def test_a_folder_in_the_share_is_found_wherever_the_node_was_started(share, name):
    (share / name).mkdir(parents=True)
    assert find_model(name) == str(share / name)
    (share.parent / "cwd" / name).mkdir(
        parents=True
    )  # one of the same name in the working directory changes nothing
    assert find_model(name) == str(share / name)


@pytest.mark.parametrize("name", ["mine", "a/b/c", "./mine", "../mine", "mine/", "a/b/c/", ""])
def test_a_folder_in_the_working_directory_is_never_meant(share, name):
    for path in ("mine", "a/b/c"):
        (share.parent / "cwd" / path).mkdir(parents=True)
    assert "never looked for in the working directory" in refusal(name)


def test_a_hub_id_that_is_a_folder_of_the_working_directory_as_well_could_be_two_things(share):
    assert find_model("Qwen/Qwen2-VL-2B-Instruct") == "Qwen/Qwen2-VL-2B-Instruct"
    here = share.parent / "cwd" / "Qwen" / "Qwen2-VL-2B-Instruct"
    here.mkdir(parents=True)
    assert f"could be a hub id or the folder {here}" in refusal("Qwen/Qwen2-VL-2B-Instruct")


def test_an_absolute_path_is_the_folder_that_it_says(share, tmp_path, monkeypatch):
    assert find_model(str(tmp_path)) == str(tmp_path)
    assert refusal("/nowhere/model") == "model folder /nowhere/model does not exist"
    assert refusal("/nowhere/m.gguf") == "model file /nowhere/m.gguf does not exist"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_model("~/share") == str(share) and "does not exist" in refusal("~/other")


def test_the_models_of_the_repository_are_missed_by_name_and_not_taken_for_a_hub_id(share):
    said = refusal("default_models/nav-draft")
    assert "part of the whole repository" in said and str(share) in said


def test_without_an_installed_package_the_share_is_its_source_folder_and_holds_the_draft_model():
    assert (share_folder() / "package.xml").is_file()
    assert Path(find_model("default_models/nav-draft")).is_dir()


def test_the_folder_of_a_user_that_is_not_there_is_one_line():
    refusal("~nosuchuser/model")


@pytest.mark.parametrize("name", ["org/" + "x" * 5000, "/" + "x" * 300, "a\nb"])
def test_a_name_that_no_disk_takes_is_one_short_line(name):
    said = refusal(name)
    assert len(said) < 600


# -- what kind it is


def model(folder, config='{"vocab_size": 672}', weights="model.safetensors"):
    folder.mkdir(exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(config)
    if weights:
        (folder / weights).write_bytes(b"")
    return str(folder)


@pytest.mark.parametrize(
    ("config", "preset"),
    [
        ({"vocab_size": 151_936}, "qwen2_vl"),
        ({"vocab_size": 672}, "tiny_nav"),
        ({"text_config": {"vocab_size": 151_936}}, "qwen2_vl"),
        ({"text_config": {"vocab_size": 672}, "vocab_size": 151_936}, "tiny_nav"),
        ({"text_config": None, "vocab_size": 672}, "tiny_nav"),
        ({"vocab_size": "many"}, "qwen2_vl"),
        ({}, "qwen2_vl"),
        ([], "qwen2_vl"),
    ],
)
def test_the_prompt_suits_the_vocabulary_not_the_place(tmp_path, config, preset):
    assert suited_preset(model(tmp_path / "m", json.dumps(config))) == preset


def test_a_hub_id_is_a_published_model_and_the_small_ones_of_the_repository_are_not():
    assert suited_preset("Qwen/Qwen2-VL-2B-Instruct") == "qwen2_vl"
    assert suited_preset(str(ROOT / "default_models" / "nav-target")) == "tiny_nav"


@pytest.mark.parametrize("config", ["{", "[1]", "\udcff"])
def test_a_config_that_cannot_be_read_says_nothing(tmp_path, config):
    folder = model(tmp_path / "m", None)
    (tmp_path / "m" / "config.json").write_bytes(config.encode(errors="surrogateescape"))
    assert read_config(folder) == {} and suited_preset(folder) == "qwen2_vl"


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin", "q4.gguf"])
def test_a_whole_folder_is_taken(tmp_path, weights):
    check_folder(model(tmp_path / "m", weights=weights))


@pytest.mark.parametrize(
    ("made", "lacks"),
    [
        ({"config": None}, "has no config.json"),
        ({"weights": ""}, "has no weights"),
        ({"weights": "a.txt"}, "weights"),
    ],
)
def test_a_folder_says_what_it_lacks(tmp_path, made, lacks):
    with pytest.raises(ParameterError, match=lacks):
        check_folder(model(tmp_path / "m", **made))


def test_a_prompt_alone_needs_no_weights_and_a_hub_id_is_not_looked_at(tmp_path):
    check_folder(model(tmp_path / "m", weights=""), needs_weights=False)
    check_folder("org/name")


# -- while it is being loaded


SETTINGS = DecoderSettings()


class Inner:
    """A decider that remembers what it was told."""

    def __init__(self, settings=SETTINGS):
        self.told, self.settings, self.refuses = [], settings, False

    def open(self, on_link_change):
        self.told.append("open")

    def close(self):
        self.told.append("close")

    def check(self, settings):
        self.told.append("check")

    def use(self, settings):
        if self.refuses:
            raise ParameterError("not these")
        self.settings = settings

    def link(self):
        return LinkReport(LinkState.UP)

    def so_far(self):
        return (("turn", 1),)

    def course(self):
        return RoundHistory("sd")

    def figures(self):
        return {"decisions": 3}

    def decide(self, job, cancel, on_text):
        return ModelAnswer("decided")

    def verify(self, question, cancel):
        return ModelAnswer("verified")


class Loading:
    """A DeferredDecider whose loading lasts until `done`."""

    def __init__(self, error=None, inner=None):
        self.go, self.begun_with, self.inner = threading.Event(), [], inner or Inner()
        self.error, self.clock = error, 100.0
        self.decider = DeferredDecider(self.make, SETTINGS, lambda: self.clock)

    def make(self, settings):
        self.begun_with.append(settings)
        assert self.go.wait(10)
        if self.error is not None:
            raise self.error
        return self.inner

    def done(self):
        self.go.set()
        self.decider._thread.join(10)
        return self.decider


@pytest.fixture
def loading():
    found = Loading()
    yield found
    found.done()


@pytest.mark.realtime
def test_everything_answers_at_once_while_the_model_is_being_loaded(loading):
    decider, began = loading.decider, time.monotonic()
    decider.open(print)
    decider.check(replace(SETTINGS, gamma=6))
    decider.use(replace(SETTINGS, gamma=6))
    assert not decider.is_ready and decider.link() == LinkReport() and decider.figures() == {}
    assert decider.so_far() == () and decider.course() == RoundHistory()
    decider.close()
    assert time.monotonic() - began < 0.5
    loading.clock += 7.0
    assert decider.loading_s == 7.0 and decider.failure is None


@pytest.mark.parametrize("ask", [lambda d: d.decide(None, None, None), lambda d: d.verify(None, None)])
def test_a_decision_before_the_model_is_there_fails_in_words(loading, ask):
    with pytest.raises(DecisionFailed, match="still being loaded") as failed:
        ask(loading.decider)
    assert failed.value.code is ErrorCode.INTERNAL


def test_once_loaded_it_is_the_decider_itself(loading):
    decider = loading.done()
    assert decider.is_ready and decider.link().state is LinkState.UP and decider.figures() == {"decisions": 3}
    assert decider.so_far() == (("turn", 1),) and decider.course().method == "sd"
    assert (
        decider.decide(None, None, None).text == "decided" and decider.verify(None, None).text == "verified"
    )
    decider.check(replace(SETTINGS, threads=9))
    decider.open(print)
    decider.close()
    assert loading.inner.told == ["check", "open", "close"]


def test_opened_while_loading_the_link_is_watched_from_then_on(loading):
    loading.decider.open(print)
    loading.done()
    assert loading.inner.told == ["open"]


def test_closed_while_loading_nothing_is_opened_afterwards(loading):
    loading.decider.open(print)
    loading.decider.close()
    loading.done()
    assert loading.inner.told == []


def test_settings_changed_while_loading_are_those_it_begins_with(loading):
    loading.decider.use(replace(SETTINGS, gamma=6))
    loading.done()
    assert loading.begun_with == [SETTINGS] and loading.inner.settings.gamma == 6


@pytest.mark.parametrize("name", OF_LOADING)
def test_what_the_model_is_loaded_with_cannot_change_meanwhile(loading, name):
    value = getattr(SETTINGS, name)
    other = value + 1 if isinstance(value, int) else f"{value}x"
    with pytest.raises(
        ParameterError, match=f"parameter {name} cannot change now: the model is being loaded"
    ):
        loading.decider.check(replace(SETTINGS, **{name: other}))


@pytest.mark.parametrize("error", [ParameterError("no weights"), OSError("disk"), MemoryError("too large")])
def test_a_loading_that_fails_is_kept_as_its_failure_and_nothing_becomes_ready(error):
    decider = Loading(error).done()
    assert decider.failure is error and not decider.is_ready
    with pytest.raises(DecisionFailed):
        decider.decide(None, None, None)


def test_settings_that_the_loaded_model_cannot_take_are_a_failure_as_well():
    loading = Loading()
    loading.inner.refuses = True
    loading.decider.use(replace(SETTINGS, gamma=6))
    assert str(loading.done().failure) == "not these" and not loading.decider.is_ready


def test_a_loading_that_hangs_keeps_no_process_alive():
    loading = Loading()
    assert loading.decider._thread.daemon
    loading.done()
