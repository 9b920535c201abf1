# SPDX-License-Identifier: Apache-2.0
"""The pages over runs, studies and operating points. Draws from what lies on disk, starts nothing."""
