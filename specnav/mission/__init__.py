"""`specnav mission`: check a mission, carry it out, change the one under way."""
