# SPDX-License-Identifier: Apache-2.0
"""Draws the pages about runs, studies and operating points from files on disk; starts no process."""
