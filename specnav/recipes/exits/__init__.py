# SPDX-License-Identifier: Apache-2.0
"""Training early-exit adapters for any target: what is read or invented, what is learnt, the run, its card and curves.

Only adapters learn; the target is frozen, and checked bit by bit to have stayed as it was. Words as in
`specdec.verifying.exits`.
"""
