# SPDX-License-Identifier: Apache-2.0
"""`specnav convert gguf`: a Hugging Face folder as a GGUF file for llama.cpp, written in a stream and read back.

`source` reads the folder, `text` and `vision` say what a decoder's and a vision tower's file holds, `vocabulary` the
tokens, `writing` writes, `checking` reads back, `run` is the command. A file is never half there: it gets its name only
once every number in it was compared with the folder's.
"""
