# SPDX-License-Identifier: Apache-2.0
"""What a run asks and what it is compared with: questions, operating points, the papers' figures and formulas."""
