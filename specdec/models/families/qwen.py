"""Qwen2 (biases), Qwen2.5, Qwen3 (norms over queries and keys): windows in upper layers where a config wants it."""

from specdec.models.families.family import Family, unknown_layer_types, window_by_layer_type

QWEN2 = Family("qwen2", window=window_by_layer_type, missing=unknown_layer_types)
QWEN3 = Family("qwen3", window=window_by_layer_type, missing=unknown_layer_types)
