#!/usr/bin/env bash
# Qualify a GPU: one receipt for each kind of cache, with the pool at nine tenths of the card, and a table.
#
#   tests/gpu/qualify.sh [FOLDER]               on the first GPU, in under 8 minutes
#   QUALIFY_DEVICE=cpu tests/gpu/qualify.sh     the small form: a rehearsal in host memory
#
# FOLDER takes the receipts (default: examples/evidence on a GPU, a temporary folder in a rehearsal).
# QUALIFY_MODELS, QUALIFY_POOL, QUALIFY_SECONDS (a model) and PYTHON change the defaults.
# Exit 1: a model left no receipt, one is not confirmed, or blocks move at less than 80 % of the measured copy bandwidth.
set -euo pipefail
cd "$(dirname "$0")/../.."

device=${QUALIFY_DEVICE:-cuda}
python=${PYTHON:-python3}
seconds=${QUALIFY_SECONDS:-50}
# dense GQA, MHA, MQA, MLA, sliding window, state space beside attention, gated delta net, mixture of experts,
# and the first once more with an 8-bit cache
models=${QUALIFY_MODELS:-"llama-3.1-8b llama-2-7b falcon-7b deepseek-v2-lite gemma-3-27b falcon-h1-7b \
qwen3-next-80b-a3b qwen3-30b-a3b llama-3.1-8b:fp8"}

if [ "$device" = cpu ]; then
  folder=${1:-$(mktemp -d)}
  pool=${QUALIFY_POOL:-512MiB}
  options=(--device cpu --reserve 256MiB)
else
  folder=${1:-examples/evidence}
  pool=${QUALIFY_POOL:-$("$python" -c 'import torch; print(torch.cuda.mem_get_info(0)[1] * 9 // 10)')}
  # The cache alone: weights would leave no room for nine tenths.
  options=(--gpu 0 --weights 0B)
fi

mkdir -p "$folder"
begun=$SECONDS
failed=0
for entry in $models; do
  model=${entry%%:*}
  more=()
  name=$model
  if [ "$entry" != "$model" ]; then
    more=(--kv-cache-dtype "${entry##*:}")
    name=$model-${entry##*:}
  fi
  "$python" -m kvplan validate "$model" "${options[@]}" ${more[@]+"${more[@]}"} \
    --kv-cache-memory "$pool" --time-limit "$seconds" --output "$folder/$name-$device.json" \
    >"$folder/$name-$device.txt" || { echo "$name: exit $? (see $folder/$name-$device.txt)"; failed=1; }
done
"$python" -m tests.gpu.table "$folder" || failed=1
echo "$((SECONDS - begun)) s, receipts in $folder"
exit "$failed"
