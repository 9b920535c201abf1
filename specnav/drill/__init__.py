"""Fault drills: what a robot did when something broke, as records and figures. Run by `trials.drill`."""
