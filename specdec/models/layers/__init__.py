# SPDX-License-Identifier: Apache-2.0
"""What a decoder layer computes beside its attention, plain and compiled by torch."""
