#!/usr/bin/env bash
MODEL=${MODEL:-Qwen/Qwen3-32B}
FLAGS=(
  --tensor-parallel-size 4  # one node
  --max-model-len $((32 * 1024))
)
if [[ "${FP8:-0}" == 1 ]]; then
  FLAGS+=(--kv-cache-dtype fp8)
fi
[ -n "$VERBOSE" ] && FLAGS+=(--uvicorn-log-level debug)
pkill -f "vllm serve" || true
nohup vllm serve "$MODEL" "${FLAGS[@]}" --port "$PORT" > vllm.log 2>&1 &
until curl -sf localhost:8000/health; do sleep 1; done
