# chat: llamacpp@0.5, 1 engine of 2 × rtx-3090-24gb
CUDA_VISIBLE_DEVICES=0,1 \
  llama-server \
  --model /data/m.gguf \
  --ctx-size 65536 \
  --parallel 4 \
  --no-kv-unified \
  --n-gpu-layers 99 \
  --n-cpu-moe 12 \
  --tensor-split 2,1 \
  --cpu-moe \
  --cache-type-k q8_0 \
  --cache-type-v q8_0 \
  --cache-type-k q8_0 \
  --cache-type-v q8_0 \
  --ubatch-size 512 \
  --swa-full \
  --flash-attn on \
  --no-kv-offload \
  --no-cache-prompt \
  --keep 4 \
  --context-shift \
  --split-mode layer \
  --host 127.0.0.1 \
  --port 9000 \
  --alias chat \
  --chat-template chatml
