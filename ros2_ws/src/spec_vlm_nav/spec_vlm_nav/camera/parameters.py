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

"""The parameters of camera_decode_node."""

from __future__ import annotations

from spec_vlm_nav.common.parameters import live, Parameter, RELIABILITY

SOURCES = ("topic_unitree", "topic_h264", "url")

CAMERA: tuple[Parameter, ...] = (
    Parameter("source", "topic_unitree",
              "Source of the video: unitree_go/Go2FrontVideoData or CompressedImage (h264) on `video`, or "
              "`url`.", choices=SOURCES),
    Parameter("url", "udp://230.1.1.1:1720",
              "With source url: address that receives H.264 over RTP, udp:// or rtp://."),
    Parameter("interface", "",
              "With source url: this machine's address on the camera's network; empty: the system's "
              "choice."),
    Parameter("resolution", "720p", "Video to use from Go2FrontVideoData.", choices=("720p", "360p", "180p")),
    Parameter("video_reliability", "best_effort", "QoS of the subscription.", choices=RELIABILITY),
    Parameter("output", "compressed",
              "compressed: JPEG on camera/image_raw/compressed; raw: rgb8 on camera/image_raw.",
              choices=("compressed", "raw")),
    Parameter("frame_id", "front_camera", "frame_id of the pictures if the source has none."),
    live("max_width", 640, "Wider pictures are scaled down to this many pixels; 0: never.", 0, 4096),
    live("max_rate_hz", 15.0, "Most pictures published per second.", 0.5, 120.0),
    live("jpeg_quality", 90, "JPEG quality.", 30, 100),
    Parameter("require_key_picture", True,
              "After a loss publish nothing until the next key picture; false: pictures may be smeared."),
    live("silence_s", 1.0, "No video for this long is an error on /diagnostics, s.", 0.1, 60.0),
)  # fmt: skip
