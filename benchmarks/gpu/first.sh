#!/usr/bin/env bash
# About 7 minutes on one H100 or H200: correctness, and the distance from the floor.   bash benchmarks/gpu/first.sh [folder for logs]
# Needs torch and this project's packages, or the packages that pack.sh put into .gpu/ (a host without a network).
set -u
cd "$(dirname "$0")/../.."
logs=${1:-/tmp/gpu-logs}; models=${MODELS:-/dev/shm/specnav-models}; device=${DEVICE:-cuda}; sizes=${SIZES:-"7b 2b"}
mkdir -p "$logs" "$models"
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false COLUMNS=150
python=${PYTHON:-python3}
if [ -f .gpu/site.tgz ] && ! "$python" -c 'import msgspec' 2>/dev/null; then
  mkdir -p /tmp/site && tar xzf .gpu/site.tgz -C /tmp/site
  export PYTHONPATH=/tmp/site:$PWD:$PWD/ros2_ws/src/spec_vlm_nav
fi
step() { # step NAME SECONDS COMMAND...: one line with exit code and time; the output goes to NAME.log
  n=$1; t=$2; shift 2; a=$(date +%s); timeout "$t" "$@" >"$logs/$n.log" 2>&1; echo "== $n: exit code $? after $(($(date +%s) - a)) s"
}
show() { grep -E '^[a-z0-9_]+ +[-0-9.\[TF]|rror|failed|recorded' "$logs/$1.log" | cut -c1-110; }
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,memory.total --format=csv,noheader
for size in $sizes; do
  [ -f "$models/q$size/config.json" ] || step "make$size" 120 "$python" benchmarks/gpu/make_models.py "$models/q$size" default_models/nav-target "$size" "$device" &
done; wait
target=$models/q${sizes%% *}; draft=$models/q${sizes##* }
# First correctness: every method's tokens must be those of the target, and of transformers.
step methods 90 "$python" -m specnav.cli bench run --device "$device" --dtype float32 --limit 2 --max-new-tokens 32 --out /tmp/gpu-methods \
  --methods ar,cloud-sd,split,sd,dsd,dssd,picospec,specedge,fsd,auto,hf-generate; tail -13 "$logs/methods.log"; grep -h recorded "$logs/methods.log"
[ "$device" = cuda ] && { step kernels 60 "$python" benchmarks/gpu/check_kernels.py --quick; tail -1 "$logs/kernels.log"; }
step decode 150 "$python" benchmarks/gpu/decode.py "$target" --draft "$draft" --device "$device" --json "$logs/decode.json"; show decode
step sessions 90 "$python" benchmarks/gpu/sessions.py "$target" --device "$device" --json "$logs/sessions.json"; show sessions
[ "$device" = cuda ] && { step compare 120 "$python" benchmarks/gpu/compare.py; cut -c1-300 "$logs/compare.log"; }
