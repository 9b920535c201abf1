# SPDX-License-Identifier: Apache-2.0
"""Inputs of a run and its references: questions, operating points, the papers' figures and formulas."""
