"""Bugs to plant in the robot's code: each takes one guard away. The monkey must notice every one of them."""

from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.gate import SafetyGate
from spec_vlm_nav.motion.geofence import Geofence
from spec_vlm_nav.motion.rear import RearWatch
from spec_vlm_nav.motion.response.liveness import CHANGED, JUDGED_OVER, Liveness
from spec_vlm_nav.motion.response.monitor import ResponseMonitor
from spec_vlm_nav.motion.stopping import RestDetector
from spec_vlm_nav.motion.watchdogs import OdometryWatch, ReadinessWatch, SupervisionWatch


def _creep_looks_lively(self):
    return sum(changed for changed, _ in self._changes) >= CHANGED * JUDGED_OVER


_admit = SafetyGate.admit


def _believe_anybody(self, command, now, unproven=""):
    return _admit(self, command, now)


PLANTED = {
    "stranger": [(SafetyGate, "admit", _believe_anybody)],
    "creep-lively": [(Liveness, "_looks_lively", _creep_looks_lively)],
    "in-vain": [(ResponseMonitor, "_vainly", lambda self, now: None)],
    "no-monitor": [(ResponseMonitor, "discrepancy", lambda self, now: None)],
    "no-fence": [(Geofence, "objection", lambda self, *a: "")],
    "rear-always-free": [(RearWatch, "free_m", lambda self, *a: 5.0)],
    "no-odom-watch": [(OdometryWatch, "fault", lambda self, *a: "")],
    "no-supervisor": [
        (SupervisionWatch, "supervisor_fault", lambda self, *a: ""),
        (SafetyGate, "silence", lambda self, now: None),
    ],
    "no-camera": [(SupervisionWatch, "camera_fault", lambda self, *a: "")],
    "no-ready": [(ReadinessWatch, "fault", lambda self, *a: "")],
    "estop-unlatched": [(SafetyGate, "estop", lambda self, reason: self.end_motion())],
    "stop-unlatched": [(SafetyGate, "stop", lambda self: self.end_motion())],
    "zeros-for-ever": [
        (MotionCore, "stands", lambda self, now: False),
        (MotionCore, "rest", lambda self, now: RestDetector.UNKNOWN),
    ],
}
"""Per bug: class, method and what is put in its place."""

# Not found in 300 seeds: the deciding side watches its camera itself; a motion long enough is missed by itself.
COVERED = {"no-camera", "in-vain"}


def plant(name, monkeypatch):
    """Plant a bug until the end of the test."""
    for where, what, instead in PLANTED[name]:
        monkeypatch.setattr(where, what, instead)
