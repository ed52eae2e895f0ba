#!/bin/bash
# The server of the team's chat.
declare -A MODELS=( [small]=Qwen/Qwen3-8B [large]=Qwen/Qwen3-32B )
SIZE="${SIZE:-large}"
echo "vllm serve ${MODELS[$SIZE]} --max-model-len 4096"
vllm serve "${MODELS[$SIZE]}" \
  --tensor-parallel-size 2 --max-model-len 16384 \
  --port 8000 \
  --made-up 3
