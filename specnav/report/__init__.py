# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML file that opens offline, drawn from `results.json` and the episodes' traces.

It shows only recorded data, states what was simulated, emulated or paced, and marks moves of the exploration policy,
which are not the model's. It never loads anything from a network.
"""

from specnav.report.page import REPORT_FILE, write_report

__all__ = ["REPORT_FILE", "write_report"]
