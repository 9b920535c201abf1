# SPDX-License-Identifier: Apache-2.0
"""How the shipped pair of small Qwen2-VL models is made: data from the simulator, an oracle's answers, training.

`vlm.train_vlm` runs every stage; each stage keeps what it has done in its output folder and resumes there. The room
writes ordinary Hugging Face folders and never invents a model format of its own.
"""
