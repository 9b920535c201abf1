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
Hands the parameter tables to rclpy.

Descriptors with ranges, refusal with the reason, live changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import re

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter
from spec_vlm_nav.errors import NavigationError, ParameterError
from spec_vlm_nav.parameters import check_all, Parameter, Value

# rclpy's exceptions hold the refused value only in their text.
_GIVEN = re.compile(r"parameter value \((.*?)\) for|to '(.*?)' of type")


def _descriptor(parameter: Parameter, read_only: bool) -> ParameterDescriptor:
    described = ParameterDescriptor(
        description=parameter.description,
        additional_constraints=f'allowed: {parameter.allowed}',
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


def declare(node: Node, table: Sequence[Parameter], only_live: bool = True) -> dict[str, Value]:
    """
    Declare a table on a node and return the values.

    only_live: what is not `live` is read-only from now on; False: the node itself decides about
    it. Raises ParameterError for a value that is not allowed.
    """
    values: dict[str, Value] = {}
    for parameter in table:
        try:
            declared: RosParameter = node.declare_parameter(
                parameter.name,
                parameter.default,
                _descriptor(parameter, only_live and not parameter.live),
            )
        except (InvalidParameterValueException, InvalidParameterTypeException) as error:
            value = _GIVEN.search(str(error))
            given = f' = {value.group(1) or value.group(2)}' if value else ''
            raise ParameterError(
                f'parameter {parameter.name}{given} refused: '
                f'allowed is {type(parameter.default).__name__}, {parameter.allowed}'
            ) from error
        parameter.check(declared.value)
        values[parameter.name] = declared.value
    return values


def follow_changes(
    node: Node,
    table: Sequence[Parameter],
    values: dict[str, Value],
    apply: Callable[[dict[str, Value]], None],
    only_live: Callable[[], str] = lambda: '',
) -> None:
    """
    Check later changes (rclpy itself refuses read-only ones) and hand all values to `apply`.

    apply: may refuse, with a NavigationError, and must have changed nothing then. only_live: says
    why parameters that are not live cannot change at the moment, "" when they can.
    """

    def on_set(changes: list[RosParameter]) -> SetParametersResult:
        known = {p.name: p for p in table}
        ours = {c.name: c.value for c in changes if c.name in known}
        try:
            check_all(table, ours)
            fixed = [name for name in ours if not known[name].live and ours[name] != values[name]]
            if fixed and (why := only_live()):
                raise ParameterError(f'parameter {fixed[0]} cannot change now: {why}')
            apply({**values, **ours})
        except NavigationError as error:
            return SetParametersResult(successful=False, reason=str(error))
        values.update(ours)
        return SetParametersResult(successful=True)

    node.add_on_set_parameters_callback(on_set)
