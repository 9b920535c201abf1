"""Makes the core's fixtures known here: a tiny pair, and a verifier in this process."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conftest_servers import model_root, start_server, text_pair  # noqa: F401
