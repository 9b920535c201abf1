# SPDX-License-Identifier: Apache-2.0
"""`specnav console --bag`: a walk looked at again in the browser: pictures, decisions, events, labels; no ROS."""
