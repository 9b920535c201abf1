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
Declares the parameter tables to rclpy.

It sets descriptors with ranges, refuses wrong values with the reason, and applies live changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
import re
import sys
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.srv import SetParameters, SetParametersAtomically
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter
from spec_vlm_nav.common.errors import NavigationError, ParameterError
from spec_vlm_nav.common.parameters import check_all, Parameter, Value
from spec_vlm_nav.parameters.files import refuse_unknown, wildcard_names

# rclpy's exceptions hold the refused value only in their text.
_GIVEN = re.compile(r"parameter value \((.*?)\) for|to '(.*?)' of type")
_TYPES = {kind.value for kind in RosParameter.Type}


def _descriptor(parameter: Parameter, read_only: bool) -> ParameterDescriptor:
    described = ParameterDescriptor(
        description=parameter.description,
        additional_constraints=f"allowed: {parameter.allowed}",
        read_only=read_only,
    )
    if parameter.low is not None and parameter.high is not None:
        if isinstance(parameter.default, float):
            described.floating_point_range = [
                FloatingPointRange(from_value=parameter.low, to_value=parameter.high)
            ]
        else:
            described.integer_range = [
                IntegerRange(from_value=int(parameter.low), to_value=int(parameter.high))
            ]
    return described


def unreadable(parameters: Sequence[ParameterMessage]) -> str:
    """Return why parameters of a request cannot be read, or ""."""
    for one in parameters:
        if one.value.type not in _TYPES:
            return f"parameter {one.name} refused: its value is of an unknown type {one.value.type}"
    return ""


def _refuse_unreadable(node: Node) -> None:
    """Have requests refused that cannot be read: rclpy raises, and that would end the node."""
    for service in node.services:
        if service.srv_type in (SetParameters, SetParametersAtomically):
            service.callback = partial(_set_readable, service.callback)


def _set_readable(set_them: Callable[[Any, Any], Any], request: Any, response: Any) -> Any:
    if not (why := unreadable(request.parameters)):
        return set_them(request, response)
    refused = SetParametersResult(successful=False, reason=why)
    if isinstance(request, SetParameters.Request):
        response.results = [refused] * len(request.parameters)
    else:
        response.result = refused
    return response


Check = Callable[[Mapping[str, Value]], None]


def _no_contradictions(values: Mapping[str, Value]) -> None:
    """Accept any combination of values."""


def declare(
    node: Node,
    table: Sequence[Parameter],
    only_live: bool = True,
    check: Check = _no_contradictions,
) -> dict[str, Value]:
    """
    Declare a table on a node and return the values.

    only_live: parameters that are not `live` become read-only; False: the node itself decides.
    check: raises ParameterError for values that contradict each other.
    Raises ParameterError for a value that is not allowed, and for a given parameter that is not in
    the table.
    """
    values: dict[str, Value] = {}
    _refuse_unreadable(node)
    for parameter in table:
        try:
            declared: RosParameter = node.declare_parameter(
                parameter.name,
                parameter.default,
                _descriptor(parameter, only_live and not parameter.live),
            )
        except (InvalidParameterValueException, InvalidParameterTypeException) as error:
            value = _GIVEN.search(str(error))
            given = f" = {value.group(1) or value.group(2)}" if value else ""
            raise ParameterError(
                f"parameter {parameter.name}{given} refused: "
                f"allowed is {type(parameter.default).__name__}, {parameter.allowed}"
            ) from error
        parameter.check(declared.value)
        values[parameter.name] = declared.value
    given_names = getattr(node, "_parameter_overrides", {})
    shared = wildcard_names(sys.argv, node.get_fully_qualified_name())
    refuse_unknown(node.get_name(), given_names, table, shared)
    check(values)
    return values


def follow_changes(
    node: Node,
    table: Sequence[Parameter],
    values: dict[str, Value],
    apply: Callable[[dict[str, Value]], None],
    *,
    check: Check = _no_contradictions,
    only_live: Callable[[], str] = lambda: "",
    guard: Check = _no_contradictions,
) -> None:
    """
    Validate later changes (rclpy itself refuses read-only ones) and apply them afterwards.

    Validation changes nothing: another callback, or another parameter of the same request, may
    still refuse.
    apply: called with all values after a change.
    check: raises NavigationError for values that cannot be used.
    only_live: returns why parameters that are not live cannot change now, or "".
    guard: called with the changes alone; raises ParameterError for those that loosen a safety limit
    (see loosening.py).
    """
    known = {p.name: p for p in table}

    def validate(changes: list[RosParameter]) -> SetParametersResult:
        ours = {c.name: c.value for c in changes if c.name in known}
        try:
            check_all(table, ours)
            fixed = [n for n in ours if not known[n].live and ours[n] != values[n]]
            if fixed and (why := only_live()):
                raise ParameterError(f"parameter {fixed[0]} cannot change now: {why}")
            guard(ours)
            check({**values, **ours})
        except NavigationError as error:
            return SetParametersResult(successful=False, reason=str(error))
        changed()
        return SetParametersResult(successful=True)

    def take_over(changes: object = None) -> None:
        current = {name: node.get_parameter(name).value for name in known}
        if current != values:
            values.update(current)
            apply(values)

    node.add_on_set_parameters_callback(validate)
    if hasattr(node, "add_post_set_parameters_callback"):
        node.add_post_set_parameters_callback(take_over)
        changed: Callable[[], None] = lambda: None  # noqa: E731
    else:  # Humble: a guard condition, which the executor handles next
        changed = node.create_guard_condition(take_over).trigger
