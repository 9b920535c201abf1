"""`specnav pipeline`: how long the robot stands between two motions."""
