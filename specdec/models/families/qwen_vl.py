"""Qwen2-VL, Qwen2.5-VL (windows in the vision tower), Qwen3-VL (interleaved m-rope, deepstack): pictures as rows of a
prompt. The vision towers and the rotary tables are the library's; the placement of pictures is the same in all three.
"""

from specdec.models.families.family import Family, unknown_layer_types, window_by_layer_type

_LOADER = "AutoModelForImageTextToText"

QWEN2_VL = Family("qwen2_vl", _LOADER, True, window=window_by_layer_type, missing=unknown_layer_types)
QWEN2_5_VL = Family("qwen2_5_vl", _LOADER, True, window=window_by_layer_type, missing=unknown_layer_types)
QWEN3_VL = Family("qwen3_vl", _LOADER, True, deepstack=True)
