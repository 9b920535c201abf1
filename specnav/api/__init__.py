# SPDX-License-Identifier: Apache-2.0
"""`specnav api`: an OpenAI-compatible HTTP server at the edge, over one draft model and one verifier.

`asking` parses requests and `errors` holds their errors. `request_queue` bounds how many are answered at a time,
`edge_pool` makes the answers, each in a thread with its own link, and `answer` passes one to its sender. `replies`
builds response bodies, `app` has the routes, `server` listens. Only `app` and `server` know FastAPI and uvicorn.
"""
