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

"""The /diagnostics rows of motion_node: the gate, its inputs, and counts of ended motions."""

from __future__ import annotations

import math

from spec_vlm_nav.common.diagnostics import DiagnosticRow, Level
from spec_vlm_nav.common.status import WATCHDOG_STATES
from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.gate import SafetyGate


def rows(core: MotionCore, now: float) -> list[DiagnosticRow]:
    """Return the rows of /diagnostics; now: steady clock, s."""
    gate = core.gate
    return [
        _gate(core),
        _odometry(gate, now),
        _response(gate),
        _robot_state(gate, now),
        _presence(gate),
        _geofence(gate),
        *_deciding_side(gate, now),
        _ahead(gate, now),
        _counts(core),
    ]


def _row(name: str, fault: str, fine: str, **values: object) -> DiagnosticRow:
    return DiagnosticRow(name, Level.ERROR if fault else Level.OK, fault or fine, values)


def _seconds(age: float) -> object:
    return age if math.isfinite(age) and age >= 0 else "unknown"


def _gate(core: MotionCore) -> DiagnosticRow:
    status, gate = core.status, core.gate
    level = Level.WARN if status.state in WATCHDOG_STATES or gate.latched_by else Level.OK
    if gate.estopped_by:
        return DiagnosticRow("gate", Level.ERROR, gate.held_by, {"state": status.state.name})
    latched = f"latched by {gate.latched_by}" if gate.latched_by else ""
    message = ": ".join(part for part in (status.state.name, latched or status.reason) if part)
    values = {
        "state": status.state.name,
        "reason": status.reason,
        "latched_by": gate.latched_by,
        "session": status.session,
        "sequence": status.sequence,
        "unverified": status.unverified,
    }
    return DiagnosticRow("gate", level, message, values)


def _presence(gate: SafetyGate) -> DiagnosticRow:
    held = f"held by {', '.join(gate.presence.holders)}" if gate.presence.holders else "nobody"
    fault = gate.presence.fault(gate.config.require_operator)
    level = Level.WARN if fault else Level.OK
    return DiagnosticRow("presence", level, fault or held)


def _odometry(gate: SafetyGate, now: float) -> DiagnosticRow:
    watch = gate.odometry_watch
    return _row(
        "odometry",
        watch.fault(now, gate.config),
        "sound",
        rate_hz=watch.rate.hz(now),
        age_s=_seconds(watch.age_s(now)),
        timeout_s=gate.config.odom_timeout_s,
    )


def _response(gate: SafetyGate) -> DiagnosticRow:
    monitor = gate.monitor
    watched = monitor.config.response_watched
    trust = monitor.trust.value if watched else "not watched"
    return _row("response", monitor.held_by, trust, delay_s=monitor.delay_s, trust=trust)


def _robot_state(gate: SafetyGate, now: float) -> DiagnosticRow:
    watched = bool(gate.config.robot_state_timeout_s)
    fine = "ready" if watched else "not watched"
    return _row("robot state", gate.readiness.fault(now, gate.config), fine)


def _geofence(gate: SafetyGate) -> DiagnosticRow:
    radius, pose = gate.config.geofence_m, gate.pose
    if not radius or pose is None:
        return DiagnosticRow("geofence", Level.OK, "none" if not radius else "no pose yet")
    away = gate.fence.distance_m(pose)
    level = Level.WARN if away > radius else Level.OK
    message = f"{away:.2f} m from where the instruction began, the limit is {radius:g} m"
    return DiagnosticRow("geofence", level, message, {"distance_m": away, "radius_m": radius})


def _deciding_side(gate: SafetyGate, now: float) -> list[DiagnosticRow]:
    config, watch, session = gate.config, gate.supervision, gate.session
    told = watch.told(session)
    if session is None:
        nothing = "no command yet"
        return [DiagnosticRow(name, Level.STALE, nothing) for name in ("supervisor", "camera", "verifier")]
    return [
        _row(
            "supervisor",
            watch.supervisor_fault(session, now, config),
            "heard" if config.supervisor_timeout_s else "not watched",
            age_s=_seconds(watch.silent_for_s(session, now)),
            timeout_s=config.supervisor_timeout_s,
        ),
        _row(
            "camera",
            watch.camera_fault(session, now, config),
            "fresh" if told and told.camera_age_s >= 0 else "not reported",
            age_s=_seconds(watch.camera_age_s(session, now)),
            timeout_s=config.camera_timeout_s,
        ),
        _row(
            "verifier",
            watch.verifier_fault(session, now, config),
            "heard" if told and told.verifier_age_s >= 0 else "not reported",
            age_s=_seconds(watch.verifier_age_s(session, now)),
            timeout_s=config.verifier_timeout_s,
            link=told.link.name if told else "unknown",
            link_rtt_ms=told.link_rtt_ms if told else "unknown",
        ),
    ]


def _ahead(gate: SafetyGate, now: float) -> DiagnosticRow:
    config, watch = gate.config, gate.ahead
    if not config.collision_watched:
        return DiagnosticRow("collision", Level.OK, "no collision sensor configured")
    if blind := watch.blind(now, config):
        return DiagnosticRow("collision", Level.ERROR, blind)
    fault = watch.fault(now, config)
    nearest = watch.clearance.nearest_m if watch.clearance else math.inf
    values = {
        "nearest_m": nearest,
        "allowed_m": config.collision_distance_m,
        "age_s": now - watch.heard_at,
    }
    return DiagnosticRow("collision", Level.WARN if fault else Level.OK, fault or "clear", values)


def _counts(core: MotionCore) -> DiagnosticRow:
    ended = {f"ended {name}": count for name, count in sorted(core.ended.items())}
    refused = {f"refused: {kind}": count for kind, count in sorted(core.gate.refusals.items())}
    total = sum(core.gate.refusals.values())
    by_watchdog = sum(core.ended[state.name] for state in WATCHDOG_STATES)
    return DiagnosticRow(
        "counts",
        Level.OK,
        f"{by_watchdog} ended by a watchdog, {total} refused",
        {**ended, **refused},
    )
