# SPDX-License-Identifier: Apache-2.0
"""Reads a plain model folder without the `transformers` library, whose import takes longer than most of our processes.

Supports only Llama and Qwen2-VL models in the folder format of transformers 5, complete or with layers of their target
(specdec.models.shared), in float32 on a CPU, and only if every setting is known. For anything else, broken files
included, the functions return None, and the library loads the model or reports the error; only a draft without its
target raises. Ids, pixels and logits equal the library's bit by bit, which tests check.
"""

from specdec.models.direct.reading import DirectModel, read_model, read_shape, read_tokenizer

__all__ = ["DirectModel", "read_model", "read_shape", "read_tokenizer"]
