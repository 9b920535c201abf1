# SPDX-License-Identifier: Apache-2.0
"""How the shipped pair of small text models is made: the standard library's sources, a target, its distilled draft.

`train.train_text` runs every stage; each stage keeps what it has done in its run folder and goes on from
there. The room uses the training room's loop and optimiser and writes ordinary Hugging Face folders.
"""
