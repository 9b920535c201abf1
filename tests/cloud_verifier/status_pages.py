"""What a verifier's status server answers."""

from __future__ import annotations

import urllib.error
import urllib.request

from cloud_verifier.observing.http import StatusServer
from tests.helpers.servers import PATIENCE_S


def look(status: StatusServer, page: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{status.bind}{page}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
