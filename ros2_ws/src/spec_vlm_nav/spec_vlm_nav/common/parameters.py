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
Definition of a parameter: default, range, description, and when it may change at run time.

Values are checked without ROS. Each subpackage declares its table in its module `parameters`;
`parameters/nodes.py` collects the tables and `ros/declare.py` declares them to rclpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
import enum
import math
from typing import Any, TypeVar

from spec_vlm_nav.common.errors import ParameterError
from specdec.settings import settings_of

Value = bool | int | float | str
Config = TypeVar("Config")


class Tighter(enum.Enum):
    """
    Which values of a parameter are safer.

    A change towards safer values is always allowed. Any other change loosens a safety limit; it
    needs an operator, and the robot must stand. Each enum value is the text shown in the docs.
    """

    ANY = "any"  # no safety limit
    LOWER = "lower"
    LOWER_0_OFF = "lower; 0 is none"
    HIGHER = "higher"
    TRUE = "true"
    EARLIER = "the earlier choice"
    FEWER = "fewer numbers"
    NONE = "none"  # a change in either direction may be unsafe


@dataclass(frozen=True)
class Parameter:
    """
    One parameter.

    live: it may change while the node runs.
    tighter: the direction in which a change is always allowed.
    form: description of the allowed values, where they cannot be listed.
    refuses: returns why a string value is not allowed, or "".
    """

    name: str
    default: Value
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    live: bool = False
    tighter: Tighter = Tighter.ANY
    form: str = field(default="", repr=False)
    refuses: Callable[[str], str] | None = field(default=None, repr=False)

    @property
    def allowed(self) -> str:
        """Return the allowed values in words."""
        if self.form:
            return self.form
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        return {bool: "true or false", str: "any text"}.get(type(self.default), "any number")

    def check(self, value: object) -> None:
        """Raise ParameterError with the allowed values unless `value` is one of them."""
        kind = type(self.default)
        right_type = isinstance(value, kind) and not (kind is not bool and isinstance(value, bool))
        right = right_type
        if right and self.choices:
            right = value in self.choices
        if right and self.low is not None and self.high is not None:
            assert isinstance(value, (int, float))
            right = self.low <= value <= self.high and math.isfinite(value)
        if right and self.refuses is not None and (why := self.refuses(str(value))):
            raise ParameterError(f"parameter {self.name} = {value!r} refused: {why}")
        if not right:
            kind_name = "" if right_type else f"{kind.__name__}, "
            raise ParameterError(
                f"parameter {self.name} = {value!r} refused: allowed is {kind_name}{self.allowed}"
            )

    def loosens(self, old: Value, new: Value) -> bool:
        """Return whether a change from one value to another loosens a safety limit."""
        tighter = self.tighter
        if old == new or tighter is Tighter.ANY:
            return False
        if tighter is Tighter.NONE:
            return True
        if tighter is Tighter.EARLIER:
            return self.choices.index(str(new)) > self.choices.index(str(old))
        if tighter is Tighter.FEWER:
            words = [{word.strip() for word in str(v).split(",")} for v in (old, new)]
            return not words[1] <= words[0]
        before, after = float(old), float(new)
        if tighter is Tighter.LOWER_0_OFF:
            return (after or math.inf) > (before or math.inf)
        return after > before if tighter is Tighter.LOWER else after < before


def like(kind: type, name: str, live: bool = False, **changes: Any) -> Parameter:
    """Return the parameter for a setting declared in specdec; changes: fields to override."""
    told = settings_of(kind)[name]
    made = Parameter(name, told.default, told.help, told.low, told.high, told.choices, live)
    return replace(made, **changes)


def live(
    name: str,
    default: Value,
    description: str,
    low: float | None = None,
    high: float | None = None,
    **more: Any,
) -> Parameter:
    """Return a parameter that may change while the node runs."""
    return Parameter(name, default, description, low, high, live=True, **more)


def limit(tighter: Tighter, *told: Any, **more: Any) -> Parameter:
    """Return a safety limit; `Tighter` says when it may change while the node runs. See `live`."""
    return live(*told, tighter=tighter, **more)


SAFETY_LOCKED = Parameter(
    "safety_locked",
    False,
    "No safety limit can be loosened while the node runs, not by an operator either.",
    tighter=Tighter.TRUE,
)
IMAGE_TRANSPORT = Parameter(
    "image_transport", "compressed", "Type of the image topic.", choices=("compressed", "raw")
)
RELIABILITY: tuple[str, ...] = ("best_effort", "reliable")


def fixed(default: Any) -> Any:
    """Return a field of a configuration that no parameter sets; see `config_of`."""
    return field(default=default, metadata={"fixed": True})


def config_of(kind: type[Config], values: Mapping[str, Value], prefix: str = "", **made: Any) -> Config:
    """
    Build a configuration object from the parameters named prefix + field name.

    made: values of fields that are computed by the caller. Fixed fields keep their defaults.
    Raises KeyError if any other field has no parameter, so that no setting is silently ignored.
    """
    free = (one.name for one in fields(kind) if "fixed" not in one.metadata)  # type: ignore[arg-type]
    names = {*free} - made.keys()
    return kind(**{name: values[prefix + name] for name in names}, **made)


def check_all(table: Sequence[Parameter], values: Mapping[str, object]) -> None:
    """
    Check values against a table of parameters.

    Raises ParameterError for the first invalid value or unknown name.
    """
    known = {p.name: p for p in table}
    for name, value in values.items():
        if name not in known:
            raise ParameterError(f"no parameter '{name}' here")
        known[name].check(value)


def markdown(table: Sequence[Parameter]) -> str:
    """Return the table as Markdown."""
    rows = ["| parameter | default | allowed | live | safer | meaning |", "|---|---|---|---|---|---|"]
    for p in table:
        text = str(p.default).lower() if isinstance(p.default, bool) else str(p.default)
        default = f"`{text or chr(34) * 2}`"
        rows.append(
            f"| `{p.name}` | {default} | {p.allowed} | {'yes' if p.live else 'no'} "
            f"| {'' if p.tighter is Tighter.ANY else p.tighter.value} | {p.description} |"
        )
    return "\n".join(rows)
