# SPDX-License-Identifier: Apache-2.0
"""`specnav top`: shows what a running verifier does, second by second, from its `/metrics`.

`scrape` fetches, parses, and computes what happened between two scrapes, `view` draws it, and `run` repeats
this. Nothing here depends on the verifier's internals except the names of its metrics.
"""
