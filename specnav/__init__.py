# SPDX-License-Identifier: Apache-2.0
"""The top-level package: the `specnav` command, its configuration and the processes it starts. Imports all others."""
