# SPDX-License-Identifier: Apache-2.0
"""Published models by short names: where they come from, how they reach this machine, and the pairs they make.

`table` lists them, `getting` downloads and converts, `pairs` names target, draft and exits together. A model's
weights are kept in the user's cache and never in the clone.
"""
