#!/usr/bin/env bash
# Packs the Python packages that a bare CUDA host lacks into .gpu/site.tgz (about 26 MB), for a host with torch but no network.
# Run in the checkout's root:  bash benchmarks/gpu/pack.sh     Then copy the checkout with .gpu/ and run first.sh there.
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p .gpu/site
platforms="--platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform any"
for n in 17 24 26 27 28 31 34 35 36 38 39; do platforms="$platforms --platform manylinux_2_${n}_x86_64"; done
names='transformers|tokenizers|huggingface-hub|httpx2|httpcore2|truststore|msgspec|pyzmq|llguidance|qwen-vl-utils|gguf|mcap|bitsandbytes|psutil|prometheus-client|simpy'
pins=$(grep -E "^($names)==" requirements/constraints.txt | sed 's/ ;.*//' | sort -u -t= -k1,1 -r)
wheels=$(mktemp -d)
for pin in $pins; do
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none $platforms \
    -d "$wheels" "$pin" || echo "left out: $pin"
done
(
  cd .gpu/site
  for wheel in "$wheels"/*.whl; do python3 -m zipfile -e "$wheel" .; done
  rm -f bitsandbytes/libbitsandbytes_{rocm,xpu}* bitsandbytes/libbitsandbytes_cuda1{18,21,24,26,28}.so
  tar czf ../site.tgz .
)
rm -rf .gpu/site "$wheels"
ls -l .gpu
