"""The verifier on the network: its sockets, and the table of those who are connected."""
