# SPDX-License-Identifier: Apache-2.0
"""`specnav doctor --gpu`: times of a pair's forward passes on this device, compared with its memory bandwidth."""
