# SPDX-License-Identifier: Apache-2.0
"""How the rows of one session look at its keys and values.

`choice` says which way a device takes: `segment` with a table of what is seen, `parted` without a long one, or
`invariant`, which gives a row the same numbers whatever rows come with it.
"""
