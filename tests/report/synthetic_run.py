"""A small made-up run, complete enough for every part of the report; nothing in it was measured."""

from __future__ import annotations

import io
import math
import random
from pathlib import Path

from PIL import Image, ImageDraw

from specnav.results.demo import Comparison, DemoResults, EpisodeResult, LatencyRow, summarise
from specnav.results.trace import (
    Decision,
    EpisodeTrace,
    MapObject,
    PathPoint,
    Rectangle,
    Span,
    VideoFrame,
    episode_folder,
    save_trace,
)

COLOURS = {"silver": "#b8bcc4", "red": "#d0312d", "blue": "#2f5fd0", "green": "#2f9e44", "yellow": "#e8b923"}


def draw_frame(phase: float) -> bytes:
    """A JPEG that looks roughly like a room, the target growing with `phase` (0..1)."""
    picture = Image.new("RGB", (224, 140), "#cdd6df")
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 80, 224, 140), fill="#a98f6d")
    pen.rectangle((20, 60, 60, 110), fill="#2f5fd0")
    size = 8 + 30 * phase
    pen.rectangle((130 - size / 3, 96 - 2 * size, 130 + size / 3, 100), fill="#b8bcc4")
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def timeline(rng: random.Random, rtt_ms: float, rounds: int) -> list[Span]:
    """Prefill on both sides, then drafted and verified rounds over a link."""
    half = rtt_ms / 2
    spans = [
        Span("uplink", "prompt", 0.4, 1.6 + half),
        Span("edge", "prefill", 0.3, 14.0),
        Span("cloud", "prefill", 1.6 + half, 28.0 + half),
    ]
    now = 30.0 + half
    for number in range(1, rounds + 1):
        drafted = now + rng.uniform(6, 8)
        arrived = drafted + 0.3 + half
        verified = arrived + rng.uniform(9, 12)
        spans.append(Span("edge", f"draft {number}", now, drafted))
        spans.append(Span("uplink", "draft", drafted, arrived))
        spans.append(Span("cloud", f"verify {number}", arrived, verified))
        now = verified + 0.3 + half
        spans.append(Span("downlink", "verdict", verified, now))
    return spans


def make_episode(
    run: Path, index: int, rng: random.Random, decisions: int = 9, rtt_ms: float = 40.0
) -> EpisodeResult:
    """One episode on an S-shaped path to a silver bottle, written below `run`."""
    folder = episode_folder(run, index) / "frames"
    folder.mkdir(parents=True, exist_ok=True)
    target = (4.6, 3.4)
    path = []
    steps = 120
    for number in range(steps + 1):
        part = number / steps
        x, y = 0.8 + 3.2 * part, 0.8 + 2.3 * part + 0.5 * math.sin(3 * part)
        path.append(PathPoint(30 * part, x, y, math.atan2(2.3 + 1.5 * math.cos(3 * part), 3.2)))
    made, video = [], []
    for number in range(60):
        name = f"frames/v{number:04d}.jpg"
        (folder.parent / name).write_bytes(draw_frame(number / 59))
        video.append(VideoFrame(number * 0.5, name))
    for number in range(decisions):
        policy = number == 3
        last = number == decisions - 1
        rounds = rng.randint(5, 7)
        accepted = [rng.choice((2, 3, 4, 4)) for _ in range(rounds)]
        parsed = number != 5 or index != 1
        if last:
            reasoning, action = (
                "I see the silver bottle, ahead, about 0.6 m, clear.",
                "I think I should stop because I have finished the instruction.",
            )
        elif number % 3 == 0:
            reasoning, action = "I do not see the silver bottle.", "The next action is turn left 30 degree."
        else:
            reasoning, action = (
                "I see the silver bottle, left 12 degrees, about 2.5 m, clear.",
                "The next action is move forward 75 cm.",
            )
        point = path[int(number / decisions * steps)]
        spans = timeline(rng, rtt_ms, rounds)
        end = spans[-1].end_ms
        made.append(
            Decision(
                index=number,
                t_s=30 * number / decisions,
                source="policy" if policy else "model",
                reasoning=reasoning,
                action="forward 50" if policy else (action if parsed else ""),
                model_action=action if parsed else "",
                text=f"{reasoning} {action}" if parsed else "The next action is move forward 75.",
                parsed=parsed,
                note="lost after a turn: forward" if policy else "" if parsed else "no action in the answer",
                frame=video[min(59, int(number / decisions * 59))].file,
                pose=point,
                decision_ms=end,
                time_to_action_ms=end + rng.uniform(5, 120),
                prefill_ms=28,
                total_ms=end,
                prompt_ids=[1, 2, 3],
                token_ids=list(range(sum(accepted) + rounds)),
                drafted=[4] * rounds,
                accepted=accepted,
                uplink_bytes=[41] * rounds,
                downlink_bytes=[22] * rounds,
                draft_ms=[7.0] * rounds,
                wait_ms=[52.0] * rounds,
                verify_ms=[10.5] * rounds,
                prompt_bytes=8100,
                cloud_prefill_ms=26.0,
                timeline=spans,
            )
        )
    success = index != 1
    result = EpisodeResult(
        instruction="find the silver bottle",
        success=success,
        collisions=0 if success else 1,
        steps=decisions,
        time_to_goal_s=30.0 if success else None,
        path_m=4.4,
        shortest_path_m=4.0,
        decision_ms=[d.decision_ms for d in made],
        time_to_action_ms=[d.time_to_action_ms for d in made],
        index=index,
        seed=100 + index,
        split="heldout",
        outcome="reached" if success else "wrong_object",
        detail="" if success else "stopped at the silver box, 2.31 m from the target",
        said_stop=True,
        navigation_error_m=0.52 if success else 2.31,
        duration_s=30.0,
        policy_moves=sum(d.source == "policy" for d in made),
        parse_failures=sum(not d.parsed for d in made),
        safety_stops=0,
        drafted=sum(sum(d.drafted) for d in made),
        accepted=sum(sum(d.accepted) for d in made),
        tokens=sum(len(d.token_ids) for d in made),
        rounds=sum(len(d.drafted) for d in made),
        uplink_bytes=sum(sum(d.uplink_bytes) for d in made),
        downlink_bytes=sum(sum(d.downlink_bytes) for d in made),
        round_overhead_ms=[value for d in made for value in d.overhead_ms],
    )
    names = [
        ("silver bottle", target, True),
        ("silver box", (2.2, 3.6), False),
        ("red bottle", (4.4, 1.2), False),
        ("blue chair", (1.4, 2.4), False),
        ("green plant", (5.4, 0.6), False),
        ("yellow ball", (3.1, 0.7), False),
    ]
    objects = [
        MapObject(
            name=name,
            footprint=Rectangle(x, y, 0.3, 0.3, 0.2),
            colour=COLOURS[name.split()[0]],
            is_target=goal,
        )
        for name, (x, y), goal in names
    ]
    walls = [
        Rectangle(3, 0, 6.1, 0.1),
        Rectangle(3, 4.5, 6.1, 0.1),
        Rectangle(0, 2.25, 0.1, 4.5),
        Rectangle(6, 2.25, 0.1, 4.5),
        Rectangle(2.6, 3.9, 0.1, 1.2),
        Rectangle(2.6, 0.5, 0.1, 1.0),
    ]
    save_trace(
        run,
        EpisodeTrace(
            result=result,
            bounds=(0, 0, 6, 4.5),
            walls=walls,
            objects=objects,
            path=path,
            decisions=made,
            video=video,
        ),
    )
    return result


def make_run(run: Path, episodes: int = 3, study: bool = True) -> DemoResults:
    """Write a whole synthetic run and return its results."""
    rng = random.Random(7)
    results = [make_episode(run, index, rng) for index in range(episodes)]
    rows = [
        LatencyRow(
            method=method,
            rtt_ms=rtt,
            decisions=8,
            time_to_action_ms_p50=base + rtt * per,
            time_to_action_ms_p95=(base + rtt * per) * 1.25,
            decision_ms_p50=base + rtt * per - 20,
            decision_ms_p95=(base + rtt * per) * 1.2,
            tau=tau,
        )
        for method, base, per, tau in (("ar", 190.0, 28.0, 1.0), ("sd", 150.0, 7.0, 4.4))
        for rtt in (0.0, 40.0, 120.0)
    ]
    whole = DemoResults(
        schema=1,
        config={
            "method": "sd",
            "gamma": 4,
            "rtt_ms": 40.0,
            "jitter_ms": 2.0,
            "bandwidth_mbps": 0.0,
            "loss": 0.0,
            "seed": 100,
            "exploration": "frontier_search",
            "target_model": "default_models/nav-target",
            "draft_model": "default_models/nav-draft",
            "temperature": 0.0,
            "draft_ms": 0.0,
            "verify_ms": 0.0,
        },
        machine={"processor": "made-up processor", "cores": 2, "memory_gb": 8.0, "python": "3.11"},
        episodes=results,
        summary=summarise(results, Comparison(answers=24, tokens=640)),
        latency_study=rows if study else [],
        started_at="2026-01-01T00:00:00Z",
        wall_s=123.0,
    )
    whole.save(run)
    return whole
