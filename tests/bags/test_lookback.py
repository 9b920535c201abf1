"""`specnav console --bag`: what the page is notified of a walk, labels that replay reads, clips, and what is not a
walk.
"""

import io
import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from specnav.bags.labels import read_labels
from specnav.lookback.clip import make_clip, write_clip
from specnav.lookback.config import Deciders
from specnav.lookback.replay_runner import ReplayRunner
from specnav.lookback.walk import Labels, read_walk
from specnav.replay.plan import VOCABULARY
from specnav.results.errors import EvaluationError
from tests.bags.made_up import STEP_NS, MadeUp, noise, walk

pytestmark = pytest.mark.slow

ROOMS = Path(__file__).resolve().parents[1] / "data" / "rooms.mcap"

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


def test_a_walk_lasts_until_the_decision_of_its_last_picture(tmp_path):
    bag = MadeUp().say("find the lamp")
    seen = bag.frame()
    bag.now_ns += STEP_NS
    told = read_walk(bag.decided(seen, "The next action is stop.", "stop").save(tmp_path / "walk")).told()
    last = told["decisions"][-1]["t"]
    assert last > told["frames"][-1]["t"] and told["end"] >= last


def test_a_walk_ends_before_what_was_decided_on_pictures_that_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("specnav.lookback.walk.MOST_BYTES", 2 * len(noise(0)))
    told = read_walk(walk(noisy=True).save(tmp_path / "walk")).told()
    assert 1 <= len(told["frames"]) < 6 and told["end"] < told["decisions"][-1]["t"]


def test_a_run_s_folder_with_one_bag_is_that_bag(tmp_path):
    (tmp_path / "run" / "deep").mkdir(parents=True)
    walk().save(tmp_path / "run" / "deep" / "walk")
    assert len(read_walk(tmp_path / "run").frames) == 6


def test_what_is_no_walk_is_said(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(EvaluationError, match="not a bag"):
        read_walk(tmp_path / "empty")
    with pytest.raises(EvaluationError, match="no image topic"):
        read_walk(MadeUp().say("find the lamp").save(tmp_path / "words"))
    broken = MadeUp()
    broken.frame(b"")
    with pytest.raises(EvaluationError, match="no picture"):
        read_walk(broken.save(tmp_path / "broken"))


def test_a_bag_that_was_cut_off_is_shown_as_far_as_it_goes_and_says_so(tmp_path):
    whole = ROOMS.read_bytes()
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole[: len(whole) // 2])
    found = read_walk(cut)
    assert 0 < len(found.pictures) < len(read_walk(ROOMS).pictures)
    assert any("cut off" in note for note in found.told()["notes"])


@pytest.mark.parametrize("data", [b"", b"hello", bytes(range(256)) * 9], ids=["empty", "text", "junk"])
def test_a_black_box_file_that_is_no_mcap_is_said_in_a_line(tmp_path, data):
    file = tmp_path / "blackbox.mcap"
    file.write_bytes(data)
    with pytest.raises(EvaluationError, match="does not start like an mcap file") as refused:
        read_walk(file)
    assert "\n" not in str(refused.value)


def test_labels_are_kept_at_once_in_the_form_that_replay_reads(tmp_path, found):
    labels = Labels(tmp_path / "right.csv")
    stamps = [frame.stamp_ns for frame in found.frames]
    labels.put(stamps[0], "forward 50")
    labels.put(stamps[2], list(VOCABULARY.values())[4])
    labels.put(stamps[2], "")
    kept = read_labels(tmp_path / "right.csv", VOCABULARY)
    assert [(one.stamp_ns, one.action) for one in kept] == [(stamps[0], "forward 50")]
    assert Labels(tmp_path / "right.csv").by_stamp == {stamps[0]: "forward 50"}
    with pytest.raises(EvaluationError, match="is not an action"):
        labels.put(stamps[0], "jump")


def test_the_last_label_can_be_taken_away_and_put_again(tmp_path, found):
    file = tmp_path / "right.csv"
    labels = Labels(file)
    labels.put(found.frames[0].stamp_ns, "stop")
    labels.put(found.frames[0].stamp_ns, "")
    assert Labels(file).by_stamp == {}


def test_a_label_that_cannot_be_saved_is_not_shown_either(tmp_path, found):
    labels = Labels(tmp_path / "folder" / "right.csv")
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(EvaluationError, match="cannot be saved"):
        labels.put(found.frames[0].stamp_ns, "stop")
    assert labels.by_stamp == {}


def test_a_clip_is_an_animation_of_the_part_asked_for(tmp_path, found):
    clip = Image.open(io.BytesIO(make_clip(found, 0.0, 0.5)))
    assert (clip.format, clip.n_frames) == ("GIF", 3)
    with pytest.raises(EvaluationError, match="no picture between"):
        make_clip(found, 90, 99)


def test_a_picture_that_claims_an_enormous_size_is_an_empty_one_in_a_clip(found):
    size = struct.pack(">II", 60_000, 60_000) + b"\x08\x02\0\0\0"
    huge = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + size + struct.pack(">I", zlib.crc32(b"IHDR" + size))
    huge += struct.pack(">I", 9) + b"IDAT" + bytes(13)
    clip = make_clip(replace(found, pictures={**found.pictures, 1: huge}), 0.0, 0.5)
    assert Image.open(io.BytesIO(clip)).n_frames == 3


def test_an_mp4_is_h264_with_its_index_in_front_and_keeps_the_pictures_times(tmp_path, found):
    av = pytest.importorskip("av")
    write_clip(found, tmp_path / "part.mp4", 0.0, 0.5)
    data = (tmp_path / "part.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat"), "a browser would wait for the whole file"
    with av.open(io.BytesIO(data)) as film:
        stream = film.streams.video[0]
        shown = [float(frame.pts * frame.time_base) for frame in film.decode(stream)]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
    step = STEP_NS / 1e9
    assert float(stream.duration * stream.time_base) >= shown[-1], "the length that players show"
    assert shown == pytest.approx([0, step, 2 * step, 2 * step + 1.5]), "the last one stays for a moment"


def test_a_clip_that_cannot_be_made_leaves_the_file_that_was_there(tmp_path, found, monkeypatch):
    good = tmp_path / "good.mp4"
    good.write_bytes(b"an earlier clip")
    with pytest.raises(EvaluationError, match="no picture between"):
        write_clip(found, good, 90, 99)
    monkeypatch.setattr("specnav.lookback.clip.CODEC", "no-such-codec")
    with pytest.raises(EvaluationError, match="no MP4 can be made here"):
        write_clip(found, good, 0, 1)
    for name in ("clip.avi", "clip"):
        with pytest.raises(EvaluationError, match=r"must be a \.gif or \.mp4 file"):
            write_clip(found, tmp_path / name, 0, 1)
    (tmp_path / "folder.gif").mkdir()
    with pytest.raises(EvaluationError, match="cannot be written"):
        write_clip(found, tmp_path / "folder.gif", 0, 1)
    assert good.read_bytes() == b"an earlier clip"
    assert sorted(f.name for f in tmp_path.iterdir() if "clip" in f.name or "good" in f.name) == ["good.mp4"]


def test_only_our_page_may_label(tmp_path, found):
    from starlette.testclient import TestClient

    from specnav.lookback.server import make_app

    labels = Labels(tmp_path / "right.csv")
    client = TestClient(make_app(found, labels, ReplayRunner(tmp_path, found, Deciders())), base_url="http://127.0.0.1:8766")
    asked = {"stamp_ns": str(found.frames[0].stamp_ns), "action": "stop"}
    assert client.post("/label", json=asked).status_code == 403
    assert client.post("/label", json=asked, headers={"Origin": "http://evil.example"}).status_code == 403
    ours = {"Origin": "http://127.0.0.1:8766"}
    assert client.post("/label", json=asked, headers=ours).status_code == 200 and len(labels.by_stamp) == 1
    for wrong in ("x", "[]", '{"stamp_ns": 1e999, "action": "stop"}', "[" * 9000, '{"stamp_ns": NaN, "action": 3}'):
        assert client.post("/label", content=wrong, headers=ours).status_code == 400, wrong
    assert client.post("/again", json={"method": "fsd"}).status_code == 403
    refused = client.post("/again", json={"method": "split"}, headers=ours)
    assert refused.status_code == 400 and "choose ar, " in refused.json()["why"]
    assert client.post("/again", json={"method": {}}, headers=ours).status_code == 400
    assert client.get("/again?since=-1").status_code == 400 and client.get("/again").json()["state"] == "none"
    assert (
        client.get("/frames/0").headers["content-type"] == "image/jpeg"
        and client.get("/frames/99").status_code == 404
    )
    assert (
        client.get("/clip.gif?from=0&to=1").content[:3] == b"GIF"
        and client.get("/clip.gif").status_code == 400
    )
    assert client.get("/clip.mp4?from=0&to=1").headers["content-type"] == "video/mp4"
    assert client.get("/clip.avi?from=0&to=1").status_code == client.get("/clip.gif?from=nan&to=1").status_code == 400
    assert client.get("/walk.json").json()["labels"] == {str(found.frames[0].stamp_ns): "stop"}
