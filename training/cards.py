"""Model cards of the pair: a README.md beside each model's weights, from measured figures and notes on the training."""

from __future__ import annotations

import json
from pathlib import Path

from training.errors import TrainingError

_COLUMNS = ("success", "spl", "collisions", "decisions", "explored", "unparsed")
_NAMES = {"nav-target": "target", "nav-draft": "draft"}


def figures_table(lines: list[dict]) -> str:
    """The closed-loop lines of `measure` as a Markdown table."""
    head = "| run | episodes | " + " | ".join(_COLUMNS) + " | held-out pairs | known pairs | ended |\n"
    head += "|---" * (len(_COLUMNS) + 5) + "|\n"
    rows = []
    for line in lines:
        values = line["values"]
        if "success" not in values:
            continue
        cells = [f"{values[name]:.3g}" for name in _COLUMNS]
        pairs = [f"{values[f'success_{which}_pairs']:.3g}" for which in ("held_out", "known")]
        ended = ", ".join(f"{reason} {count}" for reason, count in sorted(line["reasons"].items()))
        rows.append(f"| {line['name']} | {values['episodes']:.0f} | " + " | ".join([*cells, *pairs, ended]) + " |")
    return head + "\n".join(rows)


def write_cards(pair: Path, figures: Path, notes: str, shapes: dict[str, str]) -> None:
    """Write README.md into both model folders; shapes: one line about each model by its folder's name."""
    try:
        lines = json.loads(figures.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(f"{figures} has no figures: run training.measure with --out first") from error
    pace = next((line["values"] for line in lines if "tau" in line["values"]), None)
    told = f"γ = 4, greedy: {pace['tau']:.2f} tokens a target pass, agreement {pace['agreement']:.3f}." if pace else ""
    for folder, role in _NAMES.items():
        text = (
            f"---\nlicense: apache-2.0\npipeline_tag: image-text-to-text\n---\n# {folder}\n\n"
            f"The {role} of specnav's default pair: {shapes[folder]} Qwen2-VL format, float16.\n"
            'It answers one camera frame and one instruction ("find the silver bottle") with one sentence of\n'
            "reasoning and one of ten action sentences (NaVILA's). Trained from nothing on the simulator of this\n"
            "repository and useful only there.\n\n"
            "## Figures (held-out rooms and object-colour pairs, fp16 weights run in float32)\n\n"
            f"{figures_table(lines)}\n\n"
            f"{told}\n\n{notes}\n"
        )
        (pair / folder / "README.md").write_text(text, encoding="utf-8")
