# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
The service `~/reload_draft`: loads another draft model while the old one stays in use.

Loading runs in a background thread, and the executor never waits for it. So the response only says
that loading has begun. The log says when the new model is in use, or why the old one stays.
"""

from __future__ import annotations

import threading
from typing import Any

from spec_vlm_nav.common.errors import NavigationError
from spec_vlm_nav.model.decider import Decider
from specdec.errors import SpecdecError
from std_srvs.srv import Trigger


class DraftReloading:
    """Serves the service; call `tick` periodically in the executor's thread."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self._loading = False
        self._done: tuple[bool, str] | None = None
        node.create_service(Trigger, "~/reload_draft", self._on_request)

    def _on_request(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if self._loading:
            response.success, response.message = False, "a draft model is being loaded already"
            return response
        try:
            decider, folder = self._node.draft_to_reload()
        except (NavigationError, SpecdecError) as error:
            response.success, response.message = False, str(error)
            return response
        self._loading, self._done = True, None
        threading.Thread(target=self._load, args=(decider, folder), name="reloading", daemon=True).start()
        response.success = True
        response.message = f"{folder} is being loaded; the log says when it is in use"
        return response

    def _load(self, decider: Decider, folder: str) -> None:
        try:
            decider.swap_draft(folder)
        except (NavigationError, SpecdecError) as error:
            self._done = (False, f"the old draft model stays: {error}")
        except Exception as error:  # the caller must learn of any failure
            self._done = (False, f"the old draft model stays: {type(error).__name__}: {error}")
        else:
            self._done = (True, f"{folder} drafts from the next decision on")

    def tick(self) -> None:
        """Log how the loading ended, if it has."""
        done, self._done = self._done, None
        if done is None:
            return
        self._loading = False
        # rclpy binds a severity to the calling line: each needs a line of its own.
        if done[0]:
            self._node.get_logger().info(done[1])
        else:
            self._node.get_logger().error(done[1])
