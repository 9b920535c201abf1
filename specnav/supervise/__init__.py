# SPDX-License-Identifier: Apache-2.0
"""Starting, watching and ending the processes of a whole system on this machine, and what such a run leaves."""
