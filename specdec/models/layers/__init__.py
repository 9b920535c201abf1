# SPDX-License-Identifier: Apache-2.0
"""The computations of a decoder layer outside attention, plain and compiled by torch."""
