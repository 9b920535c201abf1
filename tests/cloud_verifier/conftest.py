"""Makes the shared fixtures known to this folder's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conftest_keys import keys, linked  # noqa: F401
from conftest_servers import (  # noqa: F401
    model_root,
    pair,
    servers,
    start_server,
    text_pair,
    vision_pair,
)
from raw_client import client, server  # noqa: F401
