# SPDX-License-Identifier: Apache-2.0
"""Evaluation: what a run left behind, and how it is judged and shown.

Words: a *run* is a folder with `results.json`; a *trace* is the full recording of one episode; a *decision* is one
answer of the model (or one move of the exploration policy). This room imports only `specdec`; it never starts a
process, never talks to ROS and never changes a recorded figure.
"""
