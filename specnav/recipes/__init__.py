# SPDX-License-Identifier: Apache-2.0
"""Training of the shipped pair of small Qwen2-VL models: data from the simulator, an oracle's answers, training.

`vlm.train_vlm` runs every stage. Each stage saves its progress in its output folder and resumes there. The package
writes ordinary Hugging Face folders and has no model format of its own.
"""
