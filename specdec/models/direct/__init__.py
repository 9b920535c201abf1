# SPDX-License-Identifier: Apache-2.0
"""A plain model folder read without the `transformers` library, whose import costs more than most of our processes do.

Takes only what it knows to the last setting: a whole Llama or Qwen2-VL in the folder format of transformers 5, for
float32 on a CPU. For anything else, a broken file included, its functions return None, and the library
loads it (or tells what is wrong with it). What both can load gives the same ids, pixels and logits, bit by bit; tests
hold the two against each other.
"""

from specdec.models.direct.reading import DirectModel, read_model, read_shape, read_tokenizer

__all__ = ["DirectModel", "read_model", "read_shape", "read_tokenizer"]
