# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of a verifier: metrics and health over HTTP, usage per client, and spans.

Nothing is decided here: working threads update counters, which are read on request.
"""
