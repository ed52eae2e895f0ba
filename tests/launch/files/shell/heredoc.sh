cat <<'TEXT'
Don't: vllm serve some/model
TEXT
cat > options.yaml <<YAML
kv_cache_config: {free_gpu_memory_fraction: 0.85}
enable_attention_dp: ${DP:-true}
YAML
cat > start.sh <<'INNER'
#!/bin/sh
exec trtllm-serve Qwen/Qwen3-32B --tp_size 2 --max_seq_len 8192 --config options.yaml
INNER
bash start.sh
