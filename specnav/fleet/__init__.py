"""`specnav fleet …`: a fleet of verifiers on Ray, brought up, looked at, scaled, upgraded and ended."""
