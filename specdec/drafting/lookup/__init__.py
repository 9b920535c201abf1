# SPDX-License-Identifier: Apache-2.0
"""Drafting by n-gram lookup: no model and no forward pass. It works best when answers repeat themselves."""
