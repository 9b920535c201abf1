# SPDX-License-Identifier: Apache-2.0
"""Names that a user gives for ROS, checked before a node is made of them. Needs rclpy."""

from __future__ import annotations

from collections.abc import Iterable

from rclpy.exceptions import NameValidationException
from rclpy.validate_namespace import validate_namespace
from rclpy.validate_topic_name import validate_topic_name

from specnav.errors import UsageError
from specnav.results.errors import one_line


def checked_namespace(given: str, topics: Iterable[str]) -> str:
    """The namespace with its leading slash. Raises UsageError where it, or one of the topics, is not a name in ROS."""
    namespace = f"/{given.strip('/')}"
    try:
        validate_namespace(namespace)
        for topic in topics:
            validate_topic_name(topic)
    except (ValueError, NameValidationException) as error:
        raise UsageError(f"not a name in ROS: {one_line(error)}") from error
    return namespace
