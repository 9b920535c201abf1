"""The graph that trials run on: real processes, a probe that hears them, and a link that can be spoiled."""
