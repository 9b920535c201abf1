"""`specnav plan`: what a pair of models needs, before anything is loaded."""
