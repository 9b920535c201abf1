# SPDX-License-Identifier: Apache-2.0
"""Starts, watches and ends the processes of a whole system on this machine, and cleans up after them."""
