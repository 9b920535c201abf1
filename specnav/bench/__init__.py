"""`specnav bench`: the verifier and the link as processes of their own, the edge in this one, and the questions.

Measuring and drawing are the evaluation room's; here things are started, stopped and told to the user.
"""
