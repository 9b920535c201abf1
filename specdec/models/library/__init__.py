"""What models on the library's own forward need beside it."""
