"""Requests: bodies as they come, and what one of them asks for."""
