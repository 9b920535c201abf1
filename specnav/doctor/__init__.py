"""`specnav doctor`: what this machine can run, and what a live ROS graph is like."""
