# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of a verifier: metrics and health over HTTP, what clients use, spans.

Decides nothing: the working thread counts and marks here what was done, and it is read off on request.
"""
