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

"""A mission's results as plain values, for JSON, tables and the console."""

from __future__ import annotations

from collections import Counter
import json
from typing import Any

from spec_vlm_nav.missions.plan import MissionPlan
from spec_vlm_nav.missions.record import Item, MissionRecord, StepProgress


def results(record: MissionRecord) -> dict[str, Any]:
    """Return the results of a mission with all its steps."""
    counts = Counter(item.progress for item in record.items)
    return {
        "schema": 1,
        "name": record.plan.name,
        "phase": record.phase.value,
        "why": record.why,
        "code": record.code,
        "elapsed_s": round(record.elapsed_s, 2),
        "distance_m": round(record.distance_m, 3),
        "done": counts[StepProgress.DONE],
        "failed": counts[StepProgress.FAILED],
        "skipped": counts[StepProgress.SKIPPED],
        "steps": [_step(item) for item in record.items],
    }


def _step(item: Item) -> dict[str, Any]:
    step = item.step
    return {
        "number": item.number,
        "kind": step.kind.value,
        "words": step.shown,
        "progress": item.progress.value,
        "tries": item.tries,
        "code": item.code,
        "message": item.message,
        "elapsed_s": round(item.elapsed_s, 2),
        "distance_m": round(item.distance_m, 3),
        "decisions": item.decisions,
        "max_s": step.max_s,
        "max_m": step.max_m,
        "retries": step.retries,
        "on_failure": step.on_failure.value,
    }


def results_json(record: MissionRecord) -> str:
    """Return a mission's results as JSON."""
    return json.dumps(results(record), ensure_ascii=False)


def plan_json(plan: MissionPlan) -> str:
    """Return the results of a mission that has not begun, as JSON."""
    items = [Item(i + 1, step) for i, step in enumerate(plan.steps)]
    return results_json(MissionRecord(plan, items))
