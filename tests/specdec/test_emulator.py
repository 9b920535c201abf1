"""The link model as a pure function, and the proxy process measured from outside."""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import OptionsError
from specdec.link.emulator import main
from specdec.link.keys import EdgeKey, write_key
from specdec.link.shaping import Direction, LinkProfile, parse_outages
from specdec.link.wire import Ping
from specdec.models import chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.helpers.emulated import emulated
from tests.helpers.servers import Pair


class TestModel:
    """When a message arrives."""

    def test_delay_is_half_the_round_trip(self) -> None:
        assert Direction(LinkProfile(rtt_ms=40), 0).arrival(1.0, 20) == pytest.approx(1.02)

    def test_bandwidth_queues_messages_behind_one_another(self) -> None:
        line = Direction(LinkProfile(bandwidth_mbps=8), 0)  # one byte a microsecond
        first = line.arrival(0.0, 100_000)
        second = line.arrival(0.0, 100_000)
        assert 0.1 < first < 0.106
        assert second == pytest.approx(2 * first)
        assert line.arrival(10.0, 1000) == pytest.approx(10.001066)

    def test_a_lost_packet_costs_a_retransmission_and_holds_up_what_follows(self) -> None:
        line = Direction(LinkProfile(rtt_ms=20, loss=0.05), seed=3)
        delays = [line.arrival(float(second), 100) - second for second in range(4000)]
        late = [delay for delay in delays if delay > 0.02]
        assert 0.03 < len(late) / len(delays) < 0.07
        assert min(late) == pytest.approx(0.21)
        crowd = Direction(LinkProfile(rtt_ms=20, loss=0.3), seed=1)
        arrivals = [crowd.arrival(0.001 * i, 100) for i in range(200)]
        assert arrivals == sorted(arrivals)

    def test_nothing_passes_in_an_outage_and_nothing_is_lost(self) -> None:
        line = Direction(LinkProfile(rtt_ms=20, outages=((1.0, 2.0),)), 0)
        assert line.arrival(0.5, 10) == pytest.approx(0.51)
        assert line.arrival(0.995, 10) == pytest.approx(3.01)
        assert line.arrival(2.0, 10) == pytest.approx(3.01)
        assert line.arrival(3.5, 10) == pytest.approx(3.51)

    def test_outages_count_in_whatever_order_they_are_given(self) -> None:
        for outages in (((3.0, 8.0), (10.0, 5.0)), ((10.0, 5.0), (3.0, 8.0))):
            assert Direction(LinkProfile(outages=outages), 0).arrival(4.0, 10) == pytest.approx(15.0)

    def test_jitter_stays_in_its_bounds_and_keeps_the_mean(self) -> None:
        line = Direction(LinkProfile(rtt_ms=100, jitter_ms=40), 0)
        delays = [line.arrival(float(second), 10) - second for second in range(2000)]
        assert min(delays) >= 0.03 and max(delays) <= 0.07
        assert statistics.mean(delays) == pytest.approx(0.05, rel=0.02)

    @pytest.mark.slow
    @given(
        st.lists(st.tuples(st.floats(0, 1), st.integers(0, 10**6)), max_size=30),
        st.integers(0, 2**32),
        st.sampled_from(
            [LinkProfile(40, 60, 5, 0.2, ((3, 1), (5, 2))), LinkProfile(), LinkProfile(0, 10, 1)]
        ),
    )
    def test_messages_never_overtake_and_seeds_repeat(
        self, sends: list[tuple[float, int]], seed: int, profile: LinkProfile
    ) -> None:
        times = list(itertools.accumulate(gap for gap, _ in sends))
        one, same = Direction(profile, seed), Direction(profile, seed)
        arrivals = [one.arrival(at, size) for at, (_, size) in zip(times, sends, strict=True)]
        assert arrivals == sorted(arrivals)
        assert all(arrival >= at for arrival, at in zip(arrivals, times, strict=True))
        assert arrivals == [same.arrival(at, size) for at, (_, size) in zip(times, sends, strict=True)]

    def test_bad_profiles_are_refused_with_the_range(self) -> None:
        for settings in (
            {"rtt_ms": -1},
            {"loss": 1.0},
            {"bandwidth_mbps": float("nan")},
            {"outages": ((-1, 2),)},
        ):
            with pytest.raises(OptionsError, match=r" must be a number from 0 to .*, got "):
                LinkProfile(**settings)  # type: ignore[arg-type]
        with pytest.raises(OptionsError, match="START:DURATION"):
            parse_outages(["soon"])
        assert parse_outages(["3:1.5", "9:1"]) == ((3.0, 1.5), (9.0, 1.0))


@pytest.mark.graph
class TestProxy:
    """The process."""

    @pytest.mark.parametrize("rtt", [0, 40, 120])
    def test_measured_round_trip_is_the_configured_one(
        self, text_pair: Pair, servers: dict[str, str], rtt: int
    ) -> None:
        with emulated(servers[text_pair.target.path], "--rtt", str(rtt)) as address, connect(address) as link:
            link.ensure_connected()
            trips = []
            for _ in range(15):
                started = time.perf_counter()
                link.send(Ping(0))
                assert link.receive(5) is not None
                trips.append((time.perf_counter() - started) * 1e3)
        assert min(trips) >= rtt
        assert statistics.median(trips) < 1.1 * rtt + 4

    def test_throughput_is_the_configured_bandwidth(self, text_pair: Pair, servers: dict[str, str]) -> None:
        """A megabyte of prompt up at 40 Mb/s takes 0.2 s."""
        from specdec.link import wire
        from specdec.link.convert import sampling_to_wire

        size = 1_000_000
        with (
            emulated(servers[text_pair.target.path], "--bandwidth", "40") as address,
            connect(address) as link,
        ):
            link.ensure_connected()
            trips = []
            for session in (1, 2, 3):  # the best of them: busy cores only ever add to it
                started = time.perf_counter()
                images = [b"x" * size]
                link.send(wire.Open(session, False, sampling_to_wire(GenerationOptions(1)), [1], images))
                reply = link.receive(5)
                trips.append(time.perf_counter() - started)
                assert reply is not None and isinstance(
                    reply[0], wire.ErrorDown
                )  # a text model takes no images
        assert size * 8 / min(trips) / 1e6 == pytest.approx(40 * 1448 / 1514, rel=0.1)

    @pytest.mark.parametrize(
        "settings",
        [
            ("--rtt", "40", "--jitter", "30"),
            ("--loss", "0.1", "--rtt", "5"),
            ("--rtt", "10", "--outage", "0.3:1.2"),
        ],
        ids=["jitter", "loss", "outage"],
    )
    def test_answers_over_a_bad_link_are_the_same(
        self, text_pair: Pair, servers: dict[str, str], settings: tuple[str, ...]
    ) -> None:
        prompt = chat_prompt(text_pair.target, "bad link")
        for options in (GenerationOptions(24), GenerationOptions(24, temperature=0.8, seed=6)):
            right = generate_local(text_pair.target, prompt, options)
            with emulated(servers[text_pair.target.path], *settings, "--seed", "5") as address:
                for method in ("ar", "sd"):
                    with connect(address, reply_timeout_s=1.0) as link:
                        decoder = EdgeDecoder(link, text_pair.draft, method, resume_timeout_s=20)
                        assert [t for chunk in decoder.generate(prompt, options) for t in chunk] == right

    def test_more_edges_than_a_select_takes_come_through(self) -> None:
        """Each has descriptors of its own towards the verifier; select() knows no more than 1024."""
        context = zmq.Context()
        try:
            echo = context.socket(zmq.ROUTER)
            port = echo.bind_to_random_port("tcp://127.0.0.1")
            with emulated(f"tcp://127.0.0.1:{port}", "--rtt", "1") as address:
                edges = [context.socket(zmq.DEALER) for _ in range(400)]
                for number, edge in enumerate(edges):
                    edge.connect(address)
                    edge.send(str(number).encode())
                for _ in edges:
                    assert echo.poll(10_000), "a message was lost on the way up"
                    echo.send_multipart(echo.recv_multipart())
                for number, edge in enumerate(edges):
                    assert edge.poll(10_000), "a message was lost on the way down"
                    assert edge.recv() == str(number).encode()
        finally:
            context.destroy(linger=0)

    def test_port_in_use_is_a_one_line_error(self, text_pair: Pair, servers: dict[str, str]) -> None:
        taken = servers[text_pair.target.path]
        command = [sys.executable, "-m", "specdec.link.emulator", "--listen", taken, "--connect", taken]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode != 0
        assert done.stderr.count("\n") == 1 and "cannot listen" in done.stderr


@pytest.mark.parametrize("listen", ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://[::]:0", "tcp://192.0.2.2:0"])
def test_a_key_opens_no_door_for_other_machines_unless_that_is_said(
    listen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public, secret = (half.decode() for half in zmq.curve_keypair())
    write_key(tmp_path / "robot.key", EdgeKey("robot", public, secret, public))
    words = ["--listen", listen, "--connect", "tcp://127.0.0.1:1", "--key", str(tmp_path / "robot.key")]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "--insecure" in said and listen in said
