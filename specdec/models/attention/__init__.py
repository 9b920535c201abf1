"""How the rows of one session look at its keys and values.

`choice` says which way a device takes: `folded` with a table of what is seen, `parted` without a long one, or
`invariant`, which gives a row the same numbers whatever rows come with it. `segment` says what is seen.
"""
