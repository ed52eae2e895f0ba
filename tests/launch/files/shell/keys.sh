#!/bin/bash
declare -A MODELS=( [small]="Qwen/Qwen3-0.6B" ["big one"]=Qwen/Qwen3-32B )
declare -A TP
TP[small]=1
TP["big one"]=2
TP+=([none]=8)
SIZE="${1:-big one}"
vllm serve "${MODELS[$SIZE]}" --tensor-parallel-size "${TP[$SIZE]}" --max-num-seqs "${#MODELS[@]}0"
