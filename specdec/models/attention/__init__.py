"""How the rows of one session look at its keys and values.

`fused` is what a device does best; `invariant` gives a row the same numbers whatever rows come with it.
"""
