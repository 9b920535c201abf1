"""What an operator sees of a verifier: metrics and health over HTTP."""
