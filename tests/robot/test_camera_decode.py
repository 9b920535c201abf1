"""H.264 in, pictures out: each its own, with its own stamp; damage and loss cost pictures, never truth."""

import random

import numpy as np
import pytest

from spec_vlm_nav.camera.decode import MAX_BYTES, H264Decoder, StreamDiagnostics
from spec_vlm_nav.camera.h264 import IDR, PPS, SPS, access_units, kind, read_sps, split_nals
from spec_vlm_nav.camera.video_url import parse_interface, parse_url
from spec_vlm_nav.common.diagnostics import Level
from spec_vlm_nav.common.errors import CameraError
from tests.helpers.videos import encode, number_of

UNITS = encode(30)


def feed(decoder, numbered, change=lambda number, data: data):
    """(number the picture should be, number it shows) of all pictures; stamps are the numbers."""
    out = []
    for number, data in numbered:
        for picture in decoder.feed(change(number, data), (number, 0)):
            out.append((picture.stamp[0], number_of(np.asarray(picture.image()))))
    return out


def without(*lost):
    return [(number, data) for number, data in enumerate(UNITS) if number not in lost]


def true_ones(shown):
    """Numbers of the pictures that came, after checking that each shows what its stamp says."""
    assert all(stamp == seen for stamp, seen in shown), shown
    return [stamp for stamp, _ in shown]


def test_every_picture_comes_out_with_the_message_it_was_in():
    decoder = H264Decoder()
    for number, data in enumerate(UNITS):
        assert true_ones(feed(decoder, [(number, data)])) == [number]
    assert vars(decoder.counts) == {
        **dict.fromkeys(vars(decoder.counts), 0),
        "fed": 30,
        "pictures": 30,
    }
    assert decoder.size == (320, 200) and 0 < decoder.took_ms() <= decoder.took_ms(0.99)


def test_begun_in_mid_stream_it_waits_for_a_key_picture():
    decoder = H264Decoder()
    assert true_ones(feed(decoder, list(enumerate(UNITS))[4:])) == list(range(10, 30))
    assert decoder.counts.damaged + decoder.counts.waiting == 6 and decoder.waits_since is None


@pytest.mark.parametrize(
    ("lost", "gaps"), [((3,), 1), ((3, 4, 5), 1), ((10,), 1), ((9,), 0), ((10, 11, 12), 1), ((13, 17), 2)]
)
def test_after_a_lost_picture_none_comes_until_the_next_key_picture(lost, gaps):
    decoder = H264Decoder()
    shown = true_ones(feed(decoder, without(*lost)))
    # Of its group of ten, those before the loss; a lost last one of a group is missed by nobody.
    assert shown == [n for n in range(30) if not any(n // 10 == gone // 10 and n >= gone for gone in lost)]
    assert decoder.counts.lost == gaps


def test_not_strict_it_goes_on_after_a_loss():
    decoder = H264Decoder(strict=False)
    assert [stamp for stamp, _ in feed(decoder, without(3))] == [n for n in range(30) if n != 3]
    assert decoder.counts.lost == 1


def cut(number, data):
    return data[: len(data) // 2] if number == 3 else data


def scratched(number, data):
    if number != 3:
        return data
    middle = len(data) // 2
    return data[:middle] + bytes(255 - byte for byte in data[middle : middle + 40]) + data[middle + 40 :]


@pytest.mark.parametrize("damage", [cut, scratched])
def test_a_damaged_picture_is_dropped_with_all_that_refer_to_it(damage):
    decoder = H264Decoder()
    assert true_ones(feed(decoder, enumerate(UNITS), damage)) == [0, 1, 2, *range(10, 30)]
    assert decoder.counts.damaged >= 1 and decoder.counts.pictures == 23


def test_a_message_that_comes_again_makes_no_second_picture():
    decoder = H264Decoder()
    twice = [(stamp, data) for stamp, data in enumerate(unit for unit in UNITS for _ in range(2))]
    shown = feed(decoder, twice)
    assert [seen for _, seen in shown] == list(range(30)) and [s for s, _ in shown] == list(range(0, 60, 2))
    assert decoder.counts.repeated == 30
    # An old one, later: taken for a gap in the numbers, not for news.
    assert feed(decoder, [(100, UNITS[22])]) == []


@pytest.mark.parametrize(
    "data", [b"", b"hello" * 50, b"\x00\x00\x01", b"\x00\x00\x00\x01\x67garbage", b"\x00" * 900]
)
def test_bytes_that_are_no_video_are_counted_and_do_no_harm(data):
    decoder = H264Decoder()
    feed(decoder, enumerate(UNITS[:3]))
    assert decoder.feed(data, (50, 0)) == []
    assert true_ones(feed(decoder, list(enumerate(UNITS))[3:])) == list(range(3, 30))
    counts = decoder.counts
    assert counts.empty + counts.not_h264 == (0 if b"\x67" in data else 1)


def test_a_message_too_large_is_not_looked_at():
    decoder = H264Decoder()
    assert decoder.feed(UNITS[0] + bytes(MAX_BYTES), (0, 0)) == []
    assert decoder.counts.not_h264 == 1


def test_random_bytes_and_random_damage_never_raise_and_never_lie():
    rng = random.Random(7)
    decoder = H264Decoder()
    for _ in range(300):
        junk = bytearray(rng.choice(UNITS))
        for _ in range(rng.randrange(1, 30)):
            junk[rng.randrange(len(junk))] = rng.randrange(256)
        decoder.feed(bytes(junk[: rng.randrange(len(junk))]), (0, 0))
        decoder.feed(b"\x00\x00\x01" + rng.randbytes(rng.randrange(80)), (0, 0))
    assert true_ones(feed(decoder, enumerate(UNITS)))[-20:] == list(range(10, 30))


def test_a_new_resolution_is_taken_up_with_its_key_picture():
    decoder = H264Decoder()
    large = encode(12, 640, 360)
    feed(decoder, enumerate(UNITS[:15]))
    # The first of the new ones is lost: nothing until the next key picture.
    shown = feed(decoder, [(100 + n, data) for n, data in enumerate(large) if n])
    assert [stamp for stamp, _ in shown] == [110, 111]
    assert decoder.size == (640, 360) and decoder.counts.new_sizes == 1


def test_several_pictures_in_one_message_and_parameter_sets_alone():
    decoder = H264Decoder()
    assert [seen for _, seen in feed(decoder, [(0, b"".join(UNITS[:3]))])] == [0, 1, 2]
    decoder = H264Decoder()
    nals = split_nals(UNITS[0])
    sets = b"".join(b"\x00\x00\x01" + nal for nal in nals if kind(nal) in (SPS, PPS))
    rest = b"".join(b"\x00\x00\x01" + nal for nal in nals if kind(nal) not in (SPS, PPS))
    assert true_ones(feed(decoder, [(0, sets), (0, rest), *list(enumerate(UNITS))[1:10]])) == list(range(10))
    # Damage makes a fresh decoder: it gets the sets that came long ago.
    feed(decoder, [(9, cut(3, UNITS[9]))])
    assert [seen for _, seen in feed(decoder, [(0, rest)])] == [0]


def test_the_syntax_of_a_stream():
    units = [unit for data in UNITS for unit in access_units(data)]
    assert len(units) == 30 and all(unit.has_picture for unit in units)
    assert [n for n, unit in enumerate(units) if IDR in map(kind, unit.nals)] == [0, 10, 20]
    sps = read_sps(next(nal for nal in units[0].nals if kind(nal) == SPS))
    assert sps is not None and not sps.gaps_allowed and 4 <= sps.frame_number_bits <= 16


@pytest.mark.parametrize("profile", ["baseline", "main", "high", "high444"])
@pytest.mark.parametrize("slices", [1, 4])
def test_profiles_and_several_slices_a_picture(profile, slices):
    units = encode(12, profile=profile, slices=str(slices), pix_fmt="yuv420p")
    decoder = H264Decoder()
    assert true_ones(feed(decoder, enumerate(units))) == list(range(12))
    decoder = H264Decoder()
    assert true_ones(feed(decoder, [(n, d) for n, d in enumerate(units) if n != 4])) == [0, 1, 2, 3, 10, 11]


def test_diagnostics_tell_silence_waiting_and_each_trouble_once():
    decoder, diagnostics = H264Decoder(), StreamDiagnostics()

    def report(heard_at, now, published=0):
        said = diagnostics.report(decoder, published, heard_at, now, silence_s=1.0)
        return said.level, said.message

    assert report(None, 10.0) == (Level.ERROR, "no video yet")
    feed(decoder, [(4, UNITS[4])])
    assert report(10.5, 11.0) == (Level.WARN, "waiting for a key picture (1 damaged)")
    feed(decoder, enumerate(UNITS[:10]))
    assert report(11.5, 12.0, published=10) == (Level.OK, "10 pictures")
    feed(decoder, [(10, b"noise"), (11, b"noise!"), (12, UNITS[10])])
    assert report(12.5, 13.0, published=11) == (Level.WARN, "2 not h264")
    assert report(12.9, 13.0, published=11) == (Level.OK, "0 pictures")
    assert report(12.9, 15.0, published=11) == (Level.ERROR, "silent for 2.1 s")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("file:///etc/passwd", "must begin with"),
        ("walk.mp4", "must begin with"),
        ("", "must begin with"),
        ("udp://230.1.1.1", "needs a port"),
        ("udp://230.1.1.1:0", "needs a port"),
        ("udp://230.1.1.1:99999999", "ort"),
        ("rtp://camera:5000", "needs an IPv4 address"),
        ("udp://230.1.1.1\r\na=x:1720", "refused"),
    ],
)
def test_a_url_that_cannot_be_a_camera_is_refused(url, said):
    with pytest.raises(CameraError, match=said):
        parse_url(url)


def test_an_interface_is_an_address_of_ours():
    assert parse_url("udp://230.1.1.1:1720") == parse_url("rtp://230.1.1.1:1720")
    assert str(parse_interface("")) == "0.0.0.0"
    with pytest.raises(CameraError, match="interface 'eth0' refused"):
        parse_interface("eth0")
