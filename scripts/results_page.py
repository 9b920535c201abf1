# SPDX-License-Identifier: Apache-2.0
"""Write the tables and the chart of docs/results.md from stored results, so that every number there has a source.

Sources: docs/results.json (command, hardware, n and interval of each number), benchmarks/gpu/results/*.json
and the measured part of config/points/*.yaml. Usage: python scripts/results_page.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
CHART = ROOT / "docs" / "results.svg"
POINTS = ("go2-wifi6", "picospec-llama70b", "specedge-32b")
METHODS = ("split", "sd", "picospec", "specedge", "fsd", "auto")
COLOURS = {
    "split": "#9aa0a6",
    "sd": "#4e79a7",
    "picospec": "#59a14f",
    "specedge": "#b07aa1",
    "fsd": "#f28e2b",
    "auto": "#e15759",
}


def load(path: str) -> Any:
    """A stored result: JSON, or YAML by its suffix."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return json.loads(text) if path.endswith(".json") else yaml.safe_load(text)


def headline() -> str:
    """The headline numbers."""
    lines = [
        "| result | value | models and hardware | n and 95 % interval | command |",
        "|---|---|---|---|---|",
    ]
    for row in load("docs/results.json")["headline"]:
        lines.append(
            f"| {row['what']} | **{row['value']}** | {row['models']}; {row['hardware']} "
            f"| {row['n']} | `{row['command']}` |"
        )
    return "\n".join(lines)


def robot() -> str:
    """The robot's table."""
    lines = ["| measurement | value | n | command |", "|---|---|---|---|"]
    for row in load("docs/results.json")["robot"]:
        lines.append(f"| {row['what']} | {row['value']} | {row['n']} | `{row['command']}` |")
    return "\n".join(lines)


def half() -> str:
    """The table of half precision."""
    lines = [
        "| number type | greedy answers that differ from `ar` | errors | largest margin; numeric noise |",
        "|---|---|---|---|",
    ]
    for row in load("docs/results.json")["half_precision"]:
        lines.append(f"| {row['type']} | {row['differ']} | {row['errors']} | {row['margin']} |")
    return "\n".join(lines)


def gpu() -> str:
    """The table of the GPU, from its raw results."""
    now = load("benchmarks/gpu/results/h200-sessions.json")
    before = load("benchmarks/gpu/results/h200-sessions-before.json")
    decode = load("benchmarks/gpu/results/h200-decode.json")
    floor = decode["floor_ms"]
    rows = [
        ("floor: reading the weights once, ms", "", f"{floor:.2f}"),
        (
            "served `ar`, ms per token (p90), sequence lengths served before",
            f"{before['ar_ms_a_token_1']:.2f} ({before['ar_ms_a_token_1_p90']:.2f})",
            f"**{now['ar_ms_a_token_2']:.2f}** ({now['ar_ms_a_token_2_p90']:.2f})",
        ),
        (
            "served `ar`, ms per token (p90), new sequence lengths",
            f"{before['ar_ms_a_token_0']:.2f} ({before['ar_ms_a_token_0_p90']:.2f})",
            f"{now['ar_ms_a_token_0']:.2f} ({now['ar_ms_a_token_0_p90']:.2f})",
        ),
        (
            "total tokens/s of 8 `sd` sessions over one session, edge 15 ms away",
            f"{before['sd_8_think_15ms_over_one']:.1f}×",
            f"{now['sd_8_think_15ms_over_one']:.1f}×",
        ),
        (
            "total tokens/s of 32 `sd` sessions over one session, edge 15 ms away",
            "",
            f"{now['sd_32_think_15ms_over_one']:.1f}×",
        ),
        (
            "forward pass of 1 token after 512 tokens of context, ms",
            f"{decode['ordinary_past_512_rows_1']:.2f}",
            f"{decode['static_past_512_rows_1']:.2f}",
        ),
        (
            "forward pass of 8 tokens after 512 tokens of context, ms",
            f"{decode['ordinary_past_512_rows_8']:.2f}",
            f"{decode['static_past_512_rows_8']:.2f}",
        ),
        (
            "forward pass of a tree of 32 nodes after 512 tokens of context, ms",
            "",
            f"{decode['static_past_512_tree_32']:.2f}",
        ),
        (
            "drafting a chain of 4 tokens with a 2B model, ms",
            f"{decode['chain_4_ordinary_t0']:.1f}",
            f"{decode['chain_4_static_t0']:.1f}",
        ),
        (
            "transformers' `generate`, ms per token: dynamic; static and compiled",
            "",
            f"{decode['library_dynamic_ms_a_token']:.1f}; {decode['library_static_ms_a_token']:.1f}",
        ),
    ]
    lines = ["| Qwen2-VL-7B shapes, bfloat16 | previous version | this version |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {what} | {old} | {new} |" for what, old, new in rows)])


def points() -> dict[str, dict[str, float]]:
    """Tokens per second over `ar`, by operating point and method."""
    measured = {name: load(f"config/points/{name}.yaml")["measured"]["over_ar"] for name in POINTS}
    return {name: {m: values[m][0] for m in METHODS if values.get(m)} for name, values in measured.items()}


def points_table() -> str:
    """The numbers of the chart."""
    lines = [
        f"| operating point | {' | '.join(f'`{m}`' for m in METHODS)} |",
        "|---" * (len(METHODS) + 1) + "|",
    ]
    for name, values in points().items():
        cells = [f"{values[m]:.2f}" if m in values else "" for m in METHODS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def chart() -> str:
    """A bar chart as SVG: groups are operating points, bars are methods, a line marks `ar`."""
    values = points()
    top, height, width, left = 3.0, 240, 720, 44
    group = (width - left - 10) / len(POINTS)
    bar = (group - 24) / len(METHODS)

    def y(value: float) -> float:
        return 20 + height * (1 - value / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 80}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="tokens per second over ar by method at three operating points">',
        f'<rect width="{width}" height="{height + 80}" fill="#ffffff"/>',
    ]
    for tick in (0.0, 1.0, 2.0, 3.0):
        colour = "#000000" if tick == 1 else "#dddddd"
        label = "ar = 1" if tick == 1 else f"{tick:.0f}"
        parts.append(
            f'<line x1="{left}" x2="{width - 10}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="{colour}"/>'
        )
        parts.append(f'<text x="{left - 4}" y="{y(tick) + 4:.1f}" text-anchor="end">{label}</text>')
    for g, (name, by_method) in enumerate(values.items()):
        for i, method in enumerate(METHODS):
            if method not in by_method:
                continue
            x, value = left + 12 + g * group + i * bar, by_method[method]
            parts.append(
                f'<rect x="{x:.1f}" y="{y(value):.1f}" width="{bar - 3:.1f}" height="{y(0) - y(value):.1f}" '
                f'fill="{COLOURS[method]}"><title>{name} {method}: {value:.2f}</title></rect>'
            )
            parts.append(
                f'<text x="{x + bar / 2 - 1.5:.1f}" y="{y(value) - 4:.1f}" text-anchor="middle" '
                f'font-size="10">{value:.2f}</text>'
            )
        middle = left + 12 + g * group + (group - 24) / 2
        parts.append(f'<text x="{middle:.1f}" y="{height + 38}" text-anchor="middle">{name}</text>')
    for i, method in enumerate(METHODS):
        x = left + 12 + i * 105
        parts.append(f'<rect x="{x}" y="{height + 56}" width="12" height="12" fill="{COLOURS[method]}"/>')
        parts.append(f'<text x="{x + 17}" y="{height + 66}">{method}</text>')
    return "\n".join([*parts, "</svg>", ""])


def smollm2() -> str:
    """The table of a published model on two engines."""
    measured = load("docs/results.json")["smollm2"]
    methods = list(measured["rows"][0]["over_ar"])
    lines = [
        f"| engine | RTT ms | `ar`, tokens/s | {' | '.join(f'`{name}`' for name in methods)} |",
        "|---" * (len(methods) + 3) + "|",
    ]
    for row in measured["rows"]:
        cells = " | ".join(f"{row['over_ar'][name]:.2f}" for name in methods)
        lines.append(f"| {row['engine']} | {row['rtt_ms']} | {row['ar_tokens_per_s']:.1f} | {cells} |")
    return "\n".join(lines)


BLOCKS = {
    "headline": headline,
    "points": points_table,
    "robot": robot,
    "gpu": gpu,
    "half precision": half,
    "smollm2": smollm2,
}


def page(text: str) -> str:
    """The page with every generated block made again. Raises ValueError where a block has no place."""
    for name, make in BLOCKS.items():
        begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(
                f"{PAGE.name} must hold one block {name!r}: add {begin.strip()} and {end.strip()}"
            )
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{make()}\n{end}{rest.partition(end)[2]}"
    return text


def main(arguments: list[str]) -> int:
    """Write the page and the chart; with --check only say whether they are up to date."""
    made, drawn = page(PAGE.read_text(encoding="utf-8")), chart()
    if arguments == ["--check"]:
        same = PAGE.read_text(encoding="utf-8") == made and CHART.read_text(encoding="utf-8") == drawn
        print("up to date" if same else "docs/results.md is out of date: run python scripts/results_page.py")
        return 0 if same else 1
    PAGE.write_text(made, encoding="utf-8")
    CHART.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
