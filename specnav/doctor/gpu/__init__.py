"""`specnav doctor --gpu`: what forwards of a pair cost on this device, against what its memory allows."""
