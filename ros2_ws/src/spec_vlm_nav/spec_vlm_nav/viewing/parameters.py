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

"""The parameters of view_node."""

from __future__ import annotations

from spec_vlm_nav.common.parameters import Parameter, RELIABILITY

VIEW: tuple[Parameter, ...] = (
    Parameter(
        'image_transport', 'compressed', 'Type of the image topic.', choices=('compressed', 'raw')
    ),
    Parameter(
        'image_reliability', 'best_effort', 'QoS of the image subscription.', choices=RELIABILITY
    ),
    Parameter(
        'odom_reliability', 'best_effort', 'QoS of the odometry subscription.', choices=RELIABILITY
    ),
    Parameter(
        'width', 640, 'Width of the annotated picture, pixels; the height follows.', 240, 1920
    ),
    Parameter('jpeg_quality', 80, 'Quality of the annotated picture.', 30, 100, live=True),
    Parameter(
        'max_rate_hz', 10.0, 'At most this many annotated pictures a second.', 0.5, 60.0, live=True
    ),
    Parameter('path_spacing_m', 0.05, 'Distance between the places of the path, m.', 0.01, 5.0),
    Parameter('path_length', 2000, 'Places the path keeps; the oldest go first.', 2, 100000),
)
