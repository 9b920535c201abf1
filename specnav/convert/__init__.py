# SPDX-License-Identifier: Apache-2.0
"""`specnav convert gguf`: converts a Hugging Face folder to a GGUF file for llama.cpp, and reads the file back.

`source` reads the folder. `text` and `vision` plan the content of a decoder's and a vision tower's file, `vocabulary`
that of the tokens. `writing` writes, `checking` reads back, `run` is the command. A file gets its name only after every
number in it has been compared with the folder's.
"""
