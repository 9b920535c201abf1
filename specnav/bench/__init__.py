# SPDX-License-Identifier: Apache-2.0
"""`specnav bench`: put the same questions to several methods and measure them in the same way.

`data` holds a run's inputs and `records` its output files. `studies` defines what a study varies, `report` draws the
pages, `runner` starts and stops processes.
"""
