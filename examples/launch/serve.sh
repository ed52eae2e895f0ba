#!/usr/bin/env bash
set -euo pipefail
MODEL=${1:-Qwen/Qwen3-32B}
ARGS=(--tensor-parallel-size 2 --max-model-len 16384)
if [[ ${LORA:-} == 1 ]]; then
  ARGS+=(--enable-lora)
fi
export CUDA_VISIBLE_DEVICES=0,1
exec vllm serve "$MODEL" "${ARGS[@]}" --port "$PORT"
