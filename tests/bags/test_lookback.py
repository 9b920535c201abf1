"""`specnav console --bag`: what the page is told of a walk, labels that replay reads, clips, and what is no walk."""

import io
import json

import pytest
from PIL import Image

from evaluation.bags.labels import read_labels
from evaluation.errors import EvaluationError
from specnav.lookback.clip import make_clip, write_clip
from specnav.lookback.labels import Labels
from specnav.lookback.walk import read_walk
from specnav.replay.plan import VOCABULARY
from tests.bags.made_up import MadeUp, walk

pytest.importorskip("starlette")


@pytest.fixture
def found(tmp_path):
    return read_walk(walk().save(tmp_path / "walk"))


def test_a_walk_holds_pictures_decisions_and_events_on_one_clock(found):
    told = json.loads(json.dumps(found.told()))
    assert len(told["frames"]) == 6 and told["frames"][0]["t"] == 0.0
    assert [d["model_action"] for d in told["decisions"]] == ["forward 50"] * 3
    assert all(d["frame"] == 2 * i for i, d in enumerate(told["decisions"]))
    assert any("find the blue lamp" in event["text"] for event in told["events"])


def test_a_run_s_folder_with_one_bag_is_that_bag(tmp_path):
    (tmp_path / "run" / "deep").mkdir(parents=True)
    walk().save(tmp_path / "run" / "deep" / "walk")
    assert len(read_walk(tmp_path / "run").frames) == 6


def test_what_is_no_walk_is_said(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(EvaluationError, match="no bag"):
        read_walk(tmp_path / "empty")
    with pytest.raises(EvaluationError, match="no image topic"):
        read_walk(MadeUp().say("find the lamp").save(tmp_path / "words"))
    broken = MadeUp()
    broken.frame(b"")
    with pytest.raises(EvaluationError, match="no picture"):
        read_walk(broken.save(tmp_path / "broken"))


def test_labels_are_kept_at_once_in_the_form_that_replay_reads(tmp_path, found):
    labels = Labels(tmp_path / "right.csv")
    stamps = [frame.stamp_ns for frame in found.frames]
    labels.put(stamps[0], "forward 50")
    labels.put(stamps[2], list(VOCABULARY.values())[4])
    labels.put(stamps[2], "")
    kept = read_labels(tmp_path / "right.csv", VOCABULARY)
    assert [(one.stamp_ns, one.action) for one in kept] == [(stamps[0], "forward 50")]
    assert Labels(tmp_path / "right.csv").by_stamp == {stamps[0]: "forward 50"}
    with pytest.raises(EvaluationError, match="is no action"):
        labels.put(stamps[0], "jump")


def test_the_last_label_can_be_taken_away_and_put_again(tmp_path, found):
    file = tmp_path / "right.csv"
    labels = Labels(file)
    labels.put(found.frames[0].stamp_ns, "stop")
    labels.put(found.frames[0].stamp_ns, "")
    assert Labels(file).by_stamp == {}


def test_a_clip_is_an_animation_of_the_part_asked_for(tmp_path, found):
    clip = Image.open(io.BytesIO(make_clip(found, 0.0, 0.5)))
    assert (clip.format, clip.n_frames) == ("GIF", 3)
    with pytest.raises(EvaluationError, match="no picture between"):
        make_clip(found, 90, 99)
    with pytest.raises(EvaluationError, match="GIFs"):
        write_clip(found, tmp_path / "clip.mp4", 0, 1)


def test_only_our_page_may_label(tmp_path, found):
    from starlette.testclient import TestClient

    from specnav.lookback.server import make_app

    labels = Labels(tmp_path / "right.csv")
    client = TestClient(make_app(found, labels), base_url="http://127.0.0.1:8766")
    asked = {"stamp_ns": str(found.frames[0].stamp_ns), "action": "stop"}
    assert client.post("/label", json=asked).status_code == 403
    assert client.post("/label", json=asked, headers={"Origin": "http://evil.example"}).status_code == 403
    ours = {"Origin": "http://127.0.0.1:8766"}
    assert client.post("/label", json=asked, headers=ours).status_code == 200 and len(labels.by_stamp) == 1
    assert client.post("/label", content="x", headers=ours).status_code == 400
    assert (
        client.get("/frames/0").headers["content-type"] == "image/jpeg"
        and client.get("/frames/99").status_code == 404
    )
    assert (
        client.get("/clip.gif?from=0&to=1").content[:3] == b"GIF"
        and client.get("/clip.gif").status_code == 400
    )
    assert client.get("/walk.json").json()["labels"] == {str(found.frames[0].stamp_ns): "stop"}
