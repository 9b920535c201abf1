#!/usr/bin/env bash
# A draft for SmolLM2-135M on one GPU:   bash benchmarks/gpu/train_draft.sh smoke|real FOLDER [TARGET]
# smoke: every stage with the batch sizes of the real run, and a few seconds of training. real: MINUTES of it (8); run it again to continue.
# FOLDER gets draft/, run/, train.log and memory.txt. TARGET: the folder that `specnav models get smollm2` leaves in the user's cache;
# to a host without a network copy that folder, and .gpu/ (see pack.sh). Dry run of smoke, tiny:  DEVICE=cpu bash … smoke FOLDER
set -u
usage="usage: bash benchmarks/gpu/train_draft.sh smoke|real FOLDER [TARGET]"
mkdir -p "${2:?$usage}"; folder=$(cd "$2" && pwd)
target=$(realpath -m "${3:-${XDG_CACHE_HOME:-$HOME/.cache}/specnav/models/smollm2}")
cd "$(dirname "$0")/../.."
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=true COLUMNS=150 DEVICE=${DEVICE:-cuda}
export PYTHONPATH=$PWD:$PWD/ros2_ws/src/spec_vlm_nav
python=${PYTHON:-python3}
if [ -f .gpu/site.tgz ] && ! "$python" -c 'import msgspec' 2>/dev/null; then
  tar xzf .gpu/site.tgz -C "$folder" --one-top-level=site && export PYTHONPATH=$folder/site:$PYTHONPATH
fi
sizes="--length 1024 --new-tokens 160 --batch 32 --draft layers:0-2,10,20,29 --learn 10,20,29 --self-asked 0.6 --steps 1000000"
case $1-$DEVICE in
  smoke-cuda) sizes="$sizes --prompts 6144 --held-out 128 --minutes 0.2"; rm -rf "$folder/run" "$folder/draft" ;;
  smoke-cpu) target=${3:+$target}; target=${target:-default_models/text-target}; rm -rf "$folder/run" "$folder/draft"
    sizes="--length 160 --new-tokens 12 --batch 2 --draft layers:0,2 --learn 2 --self-asked 0.2 --steps 20 --prompts 24 --held-out 4" ;;
  real-cuda) sizes="$sizes --prompts 49152 --held-out 256 --minutes ${MINUTES:-8}" ;;
  *) echo "$usage"; exit 2 ;;
esac
[ -f "$target/model.safetensors" ] || { echo "no model in $target: run specnav models get smollm2, or name its folder"; exit 2; }
watcher=; trap '[ -z "$watcher" ] || kill $watcher' EXIT
command -v nvidia-smi >/dev/null && { nvidia-smi --query-gpu=memory.used,utilization.gpu --format=csv,noheader -lms 500 >"$folder/memory.txt" & watcher=$!; }
"$python" benchmarks/gpu/train_draft.py --target "$target" --out "$folder/draft" --run "$folder/run" --share --assistant \
  --on-policy 0 --reverse 0 --hard 0.4 --lr 0.003 $sizes >"$folder/train.log" 2>&1
code=$?
grep -aE '^[0-9.]+ s: |τ|not written in bulk|path of a CPU' "$folder/train.log" | cut -c1-150
[ $code = 0 ] || { tail -n 20 "$folder/train.log"; echo "FAILED: exit code $code"; exit $code; }
tail -n 1 "$folder/run/draft.log"
[ -z "$watcher" ] || echo "highest memory in use: $(sort -n "$folder/memory.txt" | tail -n 1)"
