"""The engine: one thread that owns the model and every answer in progress."""
