# SPDX-License-Identifier: Apache-2.0
"""`specnav bench`: the same questions put to several methods, measured the same way.

`data` is what a run asks, `records` what it leaves, `studies` what is varied, `report` draws, `runner` starts and
stops.
"""
