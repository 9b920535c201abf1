# SPDX-License-Identifier: Apache-2.0
"""Make a random-weight Qwen2-VL folder of a published shape: make_models.py OUT SRC(nav-target) 7b|2b|tiny DEVICE"""

import json
import shutil
import sys
import time
from pathlib import Path

import torch

out, src, size, device = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
S = {
    "7b": (3584, 18944, 28, 28, 4, 152064, False, [16, 24, 24]),
    "2b": (1536, 8960, 28, 12, 2, 151936, True, [16, 24, 24]),
    "tiny": (128, 256, 4, 4, 2, 152064, False, [4, 6, 6]),
}[size]
hidden, inner, layers, heads, kv, vocab, tied, sections = S
t0 = time.time()
out.mkdir(parents=True, exist_ok=True)
for f in src.iterdir():
    if f.suffix != ".safetensors" and f.suffix != ".gguf" and f.name not in ("config.json", "README.md"):
        shutil.copy(f, out / f.name)
tok = json.loads((src / "tokenizer.json").read_text())
ids = tok["model"]["vocab"]
last = max(max(ids.values()), max(a["id"] for a in tok["added_tokens"]))
for a in tok["added_tokens"]:
    ids[a["content"]] = a["id"]
for i in range(last + 1, 151646):
    ids[f"Ġw{i}"] = i
(out / "tokenizer.json").write_text(json.dumps(tok))
(out / "vocab.json").write_text(json.dumps(ids))
p = json.loads((src / "preprocessor_config.json").read_text())
p["size"] = {"shortest_edge": 3136, "longest_edge": 12845056}
(out / "preprocessor_config.json").write_text(json.dumps(p))
c = json.loads((src / "config.json").read_text())
x = c["text_config"]
x.update(
    hidden_size=hidden,
    intermediate_size=inner,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    num_key_value_heads=kv,
    vocab_size=vocab,
    tie_word_embeddings=tied,
    max_position_embeddings=32768,
    layer_types=["full_attention"] * layers,
)
x["rope_parameters"] = {"mrope_section": sections, "rope_theta": 1000000.0, "rope_type": "default"}
c["tie_word_embeddings"] = tied
c["dtype"] = "bfloat16"
v = c["vision_config"]
if size != "tiny":
    v.update(depth=32, embed_dim=1280, num_heads=16, hidden_size=hidden)
else:
    v.update(hidden_size=hidden)
(out / "config.json").write_text(json.dumps(c))
from transformers import AutoConfig, Qwen2VLForConditionalGeneration  # noqa: E402 - the files come first

config = AutoConfig.from_pretrained(out)
torch.manual_seed(1)
torch.set_default_dtype(torch.bfloat16)
with torch.device(device):
    m = Qwen2VLForConditionalGeneration._from_config(config)
torch.set_default_dtype(torch.float32)
with torch.no_grad():
    for _, q in m.named_parameters():
        if q.dim() >= 2:
            q.normal_(0, 0.02)
    head = m.lm_head.weight
    head.normal_(0, 0.05 * (3584 / hidden) ** 0.5)
t1 = time.time()
m.to(torch.bfloat16)
m.generation_config.max_length = None
m.save_pretrained(out, max_shard_size="4GB")
g = json.loads((src / "generation_config.json").read_text())
(out / "generation_config.json").write_text(json.dumps(g))
cc = json.loads((out / "config.json").read_text())
print(
    size,
    "params",
    sum(q.numel() for q in m.parameters()) / 1e9,
    "B made",
    round(t1 - t0, 1),
    "s saved",
    round(time.time() - t1, 1),
    "s",
)
