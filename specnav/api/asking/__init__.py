# SPDX-License-Identifier: Apache-2.0
"""Requests: bodies as they come, and what one of them asks for."""
