"""`specnav bench --clients`, `--study clients` and `--study batch`: what one verifier bears.

Clients are processes of their own; the verifier is watched through its metrics, the machine through its counters.
"""
