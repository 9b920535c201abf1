# SPDX-License-Identifier: Apache-2.0
"""Trains early-exit adapters for any target: data, objective, the run, its model card and curves.

Only the adapters are trained. The target is frozen, and a bitwise check confirms that it has not changed. For the terms
see `specdec.verifying.exits`.
"""
