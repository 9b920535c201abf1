# SPDX-License-Identifier: Apache-2.0
"""What runs leave on disk, and the figures that follow: results.json, rounds.jsonl, answers.jsonl, study.json."""
