"""Benchmarks: the same questions answered by several contestants in one run, measured the same way.

A *contestant* is a method over edge and cloud, or an outside *oracle* in one process; an *answer* is one turn of one
question by one contestant. Nothing here starts processes or draws; a figure that was not measured is null.
"""
