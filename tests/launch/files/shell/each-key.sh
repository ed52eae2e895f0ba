#!/bin/bash
declare -A PORTS=( [Qwen/Qwen3-0.6B]=8000 [Qwen/Qwen3-8B]=8001 )
gpu=0
for model in "${!PORTS[@]}"; do
  CUDA_VISIBLE_DEVICES=$gpu vllm serve "$model" --port "${PORTS[$model]}" &
  gpu=$((gpu + 1))
done
