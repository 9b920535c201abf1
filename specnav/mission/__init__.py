# SPDX-License-Identifier: Apache-2.0
"""`specnav mission`: checks a mission, carries it out, or changes the current one."""
