# SPDX-License-Identifier: Apache-2.0
"""Pictures independent of models: sizes from the header alone, and decoding within bounds."""
