"""Makes the shared fixtures known to this folder's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conftest_servers import model_root, text_pair  # noqa: F401
