# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of a run, asks the questions and saves the measurements in a run folder."""
