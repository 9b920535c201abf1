# SPDX-License-Identifier: Apache-2.0
"""`specnav doctor --gpu`: what forwards of a pair cost on this device, against what its memory allows."""
