# SPDX-License-Identifier: Apache-2.0
"""The engine: one thread that owns the model and every answer in progress."""
