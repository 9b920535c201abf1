# SPDX-License-Identifier: Apache-2.0
"""The front door: the `specnav` command, configuration and the processes it starts. Imports every room."""
