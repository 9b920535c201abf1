# SPDX-License-Identifier: Apache-2.0
"""Training of the shipped pair of small text models: the standard library's sources, a target, its distilled draft.

`train.train_text` runs every stage. Each stage saves its progress in the run folder and resumes there. The package uses
the common training loop and optimiser, and writes ordinary Hugging Face folders.
"""
