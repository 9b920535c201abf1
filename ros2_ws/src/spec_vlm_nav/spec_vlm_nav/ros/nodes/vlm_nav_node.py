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
The node that decides.

Its inputs are camera frames and instructions; its outputs are motion commands, reasoning and
measurements.

It is a lifecycle node. Unconfigured: parameters only. Configured: the model is in memory. Active:
the camera is watched and instructions are carried out. Every transition out of "active" stops the
robot first. It never publishes a velocity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import threading
import time
from typing import Any, NoReturn

from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn
from spec_vlm_nav.common.diagnostics import DiagnosticRow, Level
from spec_vlm_nav.common.errors import LONGEST_LINE, NavigationError, one_line
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.deciding.parameters import decoder_settings, navigator_config, VLM_NAV
from spec_vlm_nav.language.prompting import fitting_policy
from spec_vlm_nav.model.asking import spec_of
from spec_vlm_nav.model.decider import Decider, DecoderSettings
from spec_vlm_nav.model.deferred import DeferredDecider
from spec_vlm_nav.model.folders import check_folder, find_model
from spec_vlm_nav.motion.command import OPERATOR_STOP
from spec_vlm_nav.ros.basics import Diagnostics, steady_timer
from spec_vlm_nav.ros.deciding.action_server import NavigateServer
from spec_vlm_nav.ros.deciding.active import ActiveNavigator
from spec_vlm_nav.ros.deciding.publishers import Publishers
from spec_vlm_nav.ros.declare import declare, follow_changes
from spec_vlm_nav.ros.loosening import LimitLoosening, StandstillWatch
from spec_vlm_nav.ros.run import leave, run
from spec_vlm_nav.ros.subscriptions import subscribe, subscribe_stamped
from specdec.errors import SpecdecError
from specdec.methods import get_method
from std_msgs.msg import Empty, String
from std_srvs.srv import Trigger

LAST_WORDS_S = 0.1
LOADING_TICK_S = 0.1
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class VlmNavNode(LifecycleNode):
    """The lifecycle node; make_decider: builds the decider (loads the model) from the settings."""

    def __init__(self, make_decider: Callable[[DecoderSettings], Decider]) -> None:
        super().__init__("vlm_nav_node")
        self._make_decider = make_decider
        self._values = declare(self, VLM_NAV, only_live=False)
        self._decider: DeferredDecider | None = None
        self._topics: Publishers | None = None
        self._deciding: ActiveNavigator | None = None
        self._instructions = 0  # last instruction number; it continues over activations
        self._is_over = False
        self.failure: Exception | None = None  # error that ends the process
        self._refusal: Exception | None = None  # error of the last transition
        self._starting = False  # True: `start` raises transition errors instead of logging them
        self._said_ready = False
        follow_changes(
            self,
            VLM_NAV,
            self._values,
            self._apply,
            check=self._check,
            only_live=self._only_live,
            guard=LimitLoosening(self, VLM_NAV, self._values, StandstillWatch(self).why_not).check,
        )
        subscribe_stamped(self, String, "instruction", self._on_instruction)
        subscribe(self, Empty, "~/cancel", self._on_cancel)
        # Served in every state, so that each goal is answered, even if a transition ends it.
        self._server = NavigateServer(self)
        # What loads another draft model: the thread, the model's folder, and who is to draft with it.
        self._reloading: tuple[threading.Thread, str, Decider] | None = None
        self._reloaded = ""  # why the old draft model stays; "": the new one is in use
        self.create_service(Trigger, "~/reload_draft", self._on_reload)
        self._diagnostics = Diagnostics(self, self._diagnostic_rows)
        steady_timer(self, LOADING_TICK_S, self._watch_loading)

    @property
    def node(self) -> VlmNavNode:
        """Return itself, as `run` expects."""
        return self

    def start(self) -> None:
        """Configure and activate if `autostart` is set. Raises the error of a failed transition."""
        if not self._values["autostart"]:
            self.get_logger().info("unconfigured: waiting for lifecycle transitions (autostart is false)")
            return
        self._starting = True
        for trigger in (self.trigger_configure, self.trigger_activate):
            if trigger() != SUCCESS:
                raise self._refusal or NavigationError("the node could not be started: see the log")
        self._starting = False

    # -- transitions

    def on_configure(self, state: Any) -> TransitionCallbackReturn:
        """Begin to load the model; fails at once if its folder is invalid."""
        return self._attempt("configure", self._configure)

    def _configure(self) -> None:
        settings = decoder_settings(self._values)
        self._check(self._values)
        needs_weights = get_method(settings.method).needs_draft_model
        check_folder(settings.draft_model, needs_weights=needs_weights)
        self._decider, self._said_ready = DeferredDecider(self._make_decider, settings), False
        self._topics = Publishers(self)
        said = f"configured: {settings.method} with {settings.draft_model}, verifier {settings.verifier}"
        self.get_logger().info(f"{one_line(said)}; the model is being loaded")

    def _watch_loading(self) -> None:
        """Log when the model is loaded; go back to unconfigured, or end, if loading failed."""
        self._tell_reloaded()
        decider = self._decider
        if decider is None or self._said_ready:
            return
        if decider.failure is not None:
            self._said_ready = True
            if self._values["autostart"]:
                self.failure = decider.failure
                return
            self.get_logger().error(one_line(f"the model cannot be loaded: {decider.failure}", LONGEST_LINE))
            if self._deciding is not None:
                self.trigger_deactivate()
            self.trigger_cleanup()
        elif decider.is_ready and self._deciding is not None:
            self._said_ready = True
            dry = " (dry run: nothing moves)" if self._values["dry_run"] else ""
            self.get_logger().info(f"vlm_nav_node ready{dry}")

    def on_activate(self, state: Any) -> TransitionCallbackReturn:
        """Begin to watch the camera and the link, and accept instructions."""
        return self._attempt("activate", self._activate)

    def _activate(self) -> None:
        assert self._decider is not None and self._topics is not None
        settings, config = decoder_settings(self._values), navigator_config(self._values)
        self._decider.use(settings)
        policy = self._policy(self._values)
        self._deciding = ActiveNavigator(
            self, self._topics, self._decider, settings, config, policy, self._values
        )
        self._deciding.navigator.instruction.number = self._instructions
        self._deciding.on_tick = self._server.tick
        self._deciding.on_result = self._server.on_result
        self._server.deciding = self._deciding
        self._said_ready = False

    def on_deactivate(self, state: Any) -> TransitionCallbackReturn:
        """Stop the robot and close the sockets; the model stays loaded."""
        return self._attempt("deactivate", lambda: self._stand_down("vlm_nav_node was deactivated"))

    def on_cleanup(self, state: Any) -> TransitionCallbackReturn:
        """Release the model."""
        return self._attempt("clean up", self._clean_up)

    def on_shutdown(self, state: Any) -> TransitionCallbackReturn:
        """Stop the robot and close everything, from any state."""
        self._is_over = True
        return self._attempt("shut down", self._shut_down)

    def on_error(self, state: Any) -> TransitionCallbackReturn:
        """Stop the robot after an exception in a transition, and go back to unconfigured."""
        return self._attempt("recover", self._shut_down)

    def _attempt(self, what: str, act: Callable[[], None]) -> TransitionCallbackReturn:
        """
        Attempt a transition.

        An error that users can fix logs one line and fails it; any other leads to on_error.
        """
        try:
            act()
        except (NavigationError, SpecdecError) as error:
            self._refusal = error
            if not self._starting:
                self.get_logger().error(one_line(f"cannot {what}: {error}", LONGEST_LINE))
            return FAILURE
        except Exception as error:
            self._refusal = NavigationError(f"cannot {what}: {type(error).__name__}: {error}")
            self.get_logger().error(str(self._refusal))
            return TransitionCallbackReturn.ERROR
        return SUCCESS

    def _stand_down(self, why: str) -> None:
        deciding, self._deciding = self._deciding, None
        if deciding is not None:
            self._instructions = deciding.navigator.instruction.number
            deciding.close(why)
        self._server.deciding = None

    def _clean_up(self) -> None:
        self._decider = None
        if self._topics is not None:
            self._topics.destroy()
        self._topics = None

    def _shut_down(self) -> None:
        self._stand_down("vlm_nav_node ends")
        self._clean_up()

    # -- another draft model

    def _on_reload(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """
        Load another draft model while the old one stays in use.

        The executor never waits for it: the response only says that loading has begun, and the log says
        when the new model is in use, or why the old one stays.
        """
        try:
            if self._reloading is not None:
                raise NavigationError("a draft model is being loaded already")
            if self._decider is None:
                raise NavigationError("the node is not configured: there is no draft model to reload")
            named = str(self._values["next_draft_model"])
            folder = find_model(named) if named else decoder_settings(self._values).draft_model
            check_folder(folder)
        except (NavigationError, SpecdecError) as error:
            response.success, response.message = False, str(error)
            return response
        thread = threading.Thread(
            target=self._reload, args=(self._decider, folder), name="reloading", daemon=True
        )
        self._reloading = thread, folder, self._decider
        thread.start()
        response.success = True
        response.message = f"{folder} is being loaded; the log says when it is in use"
        return response

    def _reload(self, decider: Decider, folder: str) -> None:
        try:
            decider.swap_draft(folder)
            self._reloaded = ""
        except (NavigationError, SpecdecError) as error:
            self._reloaded = str(error)
        except Exception as error:  # the operator must learn of any failure
            self._reloaded = f"{type(error).__name__}: {error}"

    def _tell_reloaded(self) -> None:
        """Log how the loading of another draft model ended, if it has."""
        if self._reloading is None or self._reloading[0].is_alive():
            return
        # rclpy binds a severity to the calling line: each needs a line of its own.
        _, folder, decider = self._reloading
        if decider is not self._decider:
            said = f"{folder} is not used: the node was cleaned up"
            self.get_logger().warning(one_line(said, LONGEST_LINE))
        elif self._reloaded:
            self.get_logger().error(one_line(f"the old draft model stays: {self._reloaded}", LONGEST_LINE))
        else:
            self.get_logger().info(one_line(f"{folder} drafts from the next decision on"))
        self._reloading = None

    # -- inputs

    def _on_instruction(self, message: String, sent: float) -> None:
        if self._deciding is not None:
            self._deciding.instruct(message.data, sent=sent)
        else:
            self.get_logger().warning("instruction ignored: the node is not active")

    def _on_cancel(self, message: Empty) -> None:
        if self._deciding is not None:
            self._deciding.stop(OPERATOR_STOP)

    def _only_live(self) -> str:
        if self._decider is None:
            return ""
        return "it is read when the node is configured: deactivate and clean up first (ros2 lifecycle set)"

    def _policy(self, values: Mapping[str, Value]) -> str:
        """Return the exploration policy to use; raises NavigationError if it does not fit the model."""
        settings = decoder_settings(values)
        spoken = spec_of(settings).exploration
        return fitting_policy(str(values["exploration"]), spoken, settings.draft_model)

    def _check(self, values: Mapping[str, Value]) -> None:
        """Raise NavigationError for values that cannot be used now."""
        if self._decider is not None:
            self._decider.check(decoder_settings(values))
        self._policy(values)

    def _apply(self, values: dict[str, Value]) -> None:
        if self._decider is None:
            return
        settings = decoder_settings(values)
        self._decider.use(settings)
        if self._deciding is not None:
            self._deciding.use(settings, navigator_config(values), self._policy(values))

    def _diagnostic_rows(self) -> list[DiagnosticRow]:
        deciding = self._deciding
        model = self._model_rows()
        if deciding is None or self._decider is None:
            state = "inactive" if self._decider is not None else "unconfigured"
            return [DiagnosticRow("lifecycle", Level.WARN, state), *model]
        navigator = deciding.navigator
        rows = deciding.diagnostics.rows(
            navigator.camera,
            navigator.config.camera_timeout_s,
            self._decider.link(),
            self._decider.figures(),
            navigator.phase.value,
            time.monotonic(),
            self._decider.course(),
        )
        return [DiagnosticRow("lifecycle", Level.OK, "active"), *model, *rows]

    def _model_rows(self) -> list[DiagnosticRow]:
        decider = self._decider
        if decider is None:
            return []
        if decider.failure is not None:
            return [DiagnosticRow("model", Level.ERROR, str(decider.failure))]
        if not decider.is_ready:
            return [DiagnosticRow("model", Level.WARN, f"loading, {decider.loading_s:.0f} s so far")]
        return [DiagnosticRow("model", Level.OK, "loaded")]

    def close(self) -> None:
        """
        Shut down: stop the robot, close everything, and answer a pending goal.

        It spins up to LAST_WORDS_S so that the client receives the result.
        """
        is_awaited = self._server.is_busy
        if not self._is_over:
            self.trigger_shutdown()
        until = time.monotonic() + LAST_WORDS_S
        while is_awaited and self.executor is not None and time.monotonic() < until:
            self.executor.spin_once(timeout_sec=0.01)


def make_decider(settings: DecoderSettings) -> Decider:
    """
    Make the real decider.

    It is imported here, so that a wrong parameter is refused before torch is loaded.
    """
    from spec_vlm_nav.model.speculative import SpeculativeDecider

    return SpeculativeDecider(settings)


def make_node() -> VlmNavNode:
    """Make the node, and start it if `autostart` is set."""
    node = VlmNavNode(make_decider)
    node.start()
    return node


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point."""
    leave(run(make_node, args, (SpecdecError,)))


if __name__ == "__main__":
    main()
