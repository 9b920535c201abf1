# SPDX-License-Identifier: Apache-2.0
"""The verifier on the network: its sockets, and the table of connected clients."""
