"""Removes what no image needs from the running environment: tests, headers, the installer, and beside a torch for
CPUs what others have for GPUs.

python docker/prune.py
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

SITE = Path(sysconfig.get_path("platlib"))
UNUSED = (
    "torch/test",
    "torch/include",
    "torch/share/cmake",
    "torch/bin/*test*",
    "torch/bin/protoc*",
    "**/tests",
    "**/*.a",
)
FOR_GPUS = tuple(f"bitsandbytes/libbitsandbytes_{kind}*" for kind in ("cuda", "rocm", "xpu"))
INSTALLERS = ("pip", "pip-*", "wheel", "wheel-*")


def main() -> int:
    """Remove it; prints how much that was."""
    patterns = [*UNUSED, *INSTALLERS]
    if version("torch").endswith("+cpu"):
        patterns += FOR_GPUS
    removed = 0
    commands = Path(sys.prefix, "bin").glob("pip*")
    for path in {*commands, *(path for pattern in patterns for path in SITE.glob(pattern))}:
        if not path.exists():
            continue  # inside of what has gone already
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        removed += sum(file.stat().st_size for file in files)
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    print(f"removed {removed / 1e6:.0f} MB that no image needs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
