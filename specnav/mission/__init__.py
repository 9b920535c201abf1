# SPDX-License-Identifier: Apache-2.0
"""`specnav mission`: check a mission, carry it out, change the one under way."""
