EXTRA="--max-num-seqs 64 --enforce-eager"
CMD="vllm serve Qwen/Qwen3-8B $EXTRA"
NAME=${CMD##* }
eval "$CMD --max-model-len ${LEN:=${MAX:-8192}} $([ "$KV" = 8 ] && echo '--kv-cache-dtype fp8')"
