# SPDX-License-Identifier: Apache-2.0
"""Model cards, README.md of a trained model's folder, from the templates beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def model_card(template: str, **values: Any) -> str:
    """The card from `templates/TEMPLATE.md.jinja`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = FileSystemLoader(Path(__file__).parent / "templates")
    cards = Environment(loader=folder, undefined=StrictUndefined, keep_trailing_newline=True)  # Markdown: not escaped
    return cards.get_template(f"{template}.md.jinja").render(values)


def machine_name(cores: int) -> str:
    """The machine of a training, in words."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"{cores} CPU core(s)"
