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
The black box: it keeps the last minute of all topics in memory and writes a file at a fault.

Terms: an *entry* is one received message. The *ring* holds the entries of the last seconds. A
*trigger* is a fault, an e-stop, a failed instruction or an operator's request. A *recording* is the
content of the ring shortly after a trigger; it becomes one file. This package is free of ROS and
never delays the robot: the node is a separate, listen-only process.
"""
