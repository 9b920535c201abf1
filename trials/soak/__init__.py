"""`specnav soak`: the same for hours, while everything that could grow is watched."""
