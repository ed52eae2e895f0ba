# chat: trtllm@1.2, 1 engine of 4 × h100-sxm-80gb
cat > kvplan-options.yaml <<'END_OF_OPTIONS'
dtype: bfloat16
enable_attention_dp: true
kv_cache_config:
  dtype: fp8
  mamba_ssm_cache_dtype: float32
  tokens_per_block: 64
  free_gpu_memory_fraction: 0.85
  max_gpu_total_bytes: 17179869184
  max_tokens: 1000000
  max_attention_window:
  - 512
  - 32768
  enable_block_reuse: false
  enable_partial_reuse: false
  use_kv_cache_manager_v2: true
  max_util_for_resume: 0.9
scheduler_config:
  capacity_scheduler_policy: MAX_UTILIZATION
  context_chunking_policy: EQUAL_PROGRESS
enable_chunked_prefill: true
disable_overlap_scheduler: true
cuda_graph_config: null
speculative_config:
  decoding_type: MTP
  num_nextn_predict_layers: 1
END_OF_OPTIONS
CUDA_VISIBLE_DEVICES=0,1,2,3 \
  trtllm-serve Qwen/Qwen3-32B \
  --extra_llm_api_options kvplan-options.yaml \
  --tp_size 2 \
  --pp_size 2 \
  --ep_size 2 \
  --max_seq_len 32768 \
  --max_batch_size 128 \
  --max_num_tokens 8192 \
  --host 127.0.0.1 \
  --port 9000 \
  --trust_remote_code \
  --revision main \
  --chat_template a.jinja \
  --tool_parser qwen3
