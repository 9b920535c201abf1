# SPDX-License-Identifier: Apache-2.0
"""`specnav top`: what a running verifier does, second by second, from its `/metrics`.

`scrape` fetches and parses, `figures` works out what happened between two looks (pure), `view` draws it, `run` goes on
doing so. Nothing here knows the verifier's insides: only the names of its metrics.
"""
