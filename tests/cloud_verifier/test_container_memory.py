"""What a container's memory limit leaves, as control groups of either version tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_verifier.engine.memory import check_room_for, left_in_container
from cloud_verifier.errors import VerifierError

MB = 1_000_000


def group(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("limit, left", [(str(500 * MB), 230 * MB), ("max", None), (str(1 << 62), None)])
def test_a_limit_leaves_what_is_not_in_use_or_could_be_dropped(tmp_path, limit, left):
    used, stat = f"{300 * MB}\n", f"anon 1\ninactive_file {30 * MB}\n"
    two = group(tmp_path / "2", {"memory.max": limit, "memory.current": used, "memory.stat": stat})
    files = {
        "limit_in_bytes": limit,
        "usage_in_bytes": used,
        "stat": stat.replace("inactive", "total_inactive"),
    }
    one = group(tmp_path / "1", {f"memory/memory.{name}": text for name, text in files.items()})
    assert left_in_container(two) == left_in_container(one) == left
    assert left_in_container(tmp_path / "none") is None


def test_a_model_whose_weights_alone_exceed_the_limit_is_refused_in_one_line(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(bytes(3 * MB))
    check_room_for(str(tmp_path), None)
    check_room_for(str(tmp_path), 3 * MB)
    with pytest.raises(
        VerifierError, match="has 3 MB of weights, and the memory limit of this container leaves 2 MB"
    ):
        check_room_for(str(tmp_path), 2 * MB)
