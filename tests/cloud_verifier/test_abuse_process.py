"""A real verifier process under one client that asks for everything: its memory, and the verdicts of another."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
import zmq

from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.models import chat_prompt
from tests.cloud_verifier.raw_client import OPTIONS, RawClient, open_message
from tests.graph.forking import ForkedProcess
from tests.helpers.pictures import png
from tests.helpers.servers import Pair
from tests.helpers.tiny_models import picture
from tests.helpers.verifier import verifier

pytestmark = pytest.mark.graph

PICTURE_BYTES = 16 << 20
OPENINGS = 100


def memory_mb(process: ForkedProcess | subprocess.Popen[bytes], name: str = "VmHWM") -> float:
    """Of a process, the most so far."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


def verdicts_ms(client: RawClient, rounds: range) -> list[float]:
    times = []
    for round_ in rounds:
        started = time.perf_counter()
        assert isinstance(client.ask(wire.DraftUp(1, round_, round_, [])), wire.VerdictDown)
        times.append((time.perf_counter() - started) * 1e3)
    return sorted(times)


def test_openings_of_large_pictures_again_and_again_fill_no_memory_and_hold_up_nobody(
    model_root: Path, vision_pair: Pair
) -> None:
    arguments = ("--verify-ms", "20", "--max-sessions", "2")
    # Afresh: what a fork takes over from its parent would count as its memory.
    with verifier(model_root / "vision-target", arguments=arguments, afresh=True) as (process, address, *_):
        honest = RawClient(address)
        assert isinstance(honest.ask(open_message(1, [1, 2], limit=400)), wire.Opened)
        alone = verdicts_ms(honest, range(1, 31))
        before = memory_mb(process)
        over = threading.Event()

        def abuse() -> None:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            hostile = context.socket(zmq.DEALER)
            hostile.connect(address)
            ids = list(chat_prompt(vision_pair.target, "look", images=[picture(1)]).ids)
            image = png(56, 56, PICTURE_BYTES)
            data = wire.encode(wire.Open(1, False, sampling_to_wire(OPTIONS), ids, [image]))
            for _ in range(OPENINGS):
                hostile.send(data)
            over.set()
            hostile.close(linger=20_000)
            context.term()

        thread = threading.Thread(target=abuse)
        thread.start()
        beside = verdicts_ms(honest, range(31, 91))
        thread.join(60)
        peak = memory_mb(process)
        honest.close()
    figures = f"{before:.0f} -> {peak:.0f} MB; verdicts {alone[15]:.1f} -> {beside[30]:.1f} ms, worst {beside[-1]:.0f}"
    print(figures)
    assert over.is_set()
    # What ZeroMQ reads ahead and what may be queued, some of it twice; 1,600 MB were sent.
    assert peak - before < 512, figures
    assert beside[30] < alone[15] + 150, figures
