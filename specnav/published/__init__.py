# SPDX-License-Identifier: Apache-2.0
"""Published models by short names: their sources, their download, and the pairs they form.

`table` lists them, `getting` downloads and converts, `pairs` combines target, draft and exits. Weights are kept in the
user's cache, never in the clone.
"""
