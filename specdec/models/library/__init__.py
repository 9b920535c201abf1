"""Models on the library's own forward, and what they need beside it."""
