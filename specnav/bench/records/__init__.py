# SPDX-License-Identifier: Apache-2.0
"""The files that runs write (results.json, rounds.jsonl, answers.jsonl, study.json) and the figures made from them."""
