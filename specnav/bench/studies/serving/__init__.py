"""Studies of what one verifier bears: many clients on it, and what a forward costs that many sessions share."""
