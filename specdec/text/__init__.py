"""Between tokens and text: stop strings, and text that streams out of verified tokens."""
