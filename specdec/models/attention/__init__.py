# SPDX-License-Identifier: Apache-2.0
"""Attention of one session's rows over its keys and values.

`choice` selects the implementation for a device: `segment` with a full mask, `parted` without a long mask, or
`invariant`, whose result for a row does not depend on the other rows of the pass.
"""
