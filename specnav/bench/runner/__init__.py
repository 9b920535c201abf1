# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of a run, puts the questions and keeps what was measured; every module ends in a folder."""
