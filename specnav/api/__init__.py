# SPDX-License-Identifier: Apache-2.0
"""`specnav api`: an OpenAI-compatible HTTP server at the edge, over one draft model and one verifier.

`asking` says what a request asks for, `errors` what is wrong with it; `desk` has places for it, and `house` makes the
answers, each in a thread with a link of its own, `answer` carries one to its sender, `replies` are its
shapes on the wire; `app` has the routes, `server` listens. Only `app` and `server` know FastAPI and uvicorn.
"""
