# SPDX-License-Identifier: Apache-2.0
"""`specnav console --bag`: shows a recorded walk in the browser: pictures, decisions, events, labels; needs no ROS."""
