"""The families of models that run on our own forward; every other causal model runs on the library's."""

from specdec.models.families.family import Family, Layer, Linear, is_plain
from specdec.models.families.gemma3 import GEMMA3
from specdec.models.families.llama import LLAMA
from specdec.models.families.mistral import MISTRAL
from specdec.models.families.qwen import QWEN2, QWEN3
from specdec.models.families.qwen_vl import QWEN2_5_VL, QWEN2_VL, QWEN3_VL

FAMILIES = {
    family.model_type: family
    for family in (LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA3, QWEN2_VL, QWEN2_5_VL, QWEN3_VL)
}

__all__ = ["FAMILIES", "Family", "Layer", "Linear", "is_plain"]
