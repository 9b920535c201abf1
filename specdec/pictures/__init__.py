# SPDX-License-Identifier: Apache-2.0
"""Pictures before any model sees them: their size by the header alone, and decoding within bounds."""
