source ./settings.env
start() {
  local model=$1 port=$2; shift 2
  CUDA_VISIBLE_DEVICES=$GPU llama-server -hf "$model" --port $port "$@" &
}
GPU=0 start "$SMALL" 8001 -c 4096
for GPU in 1 2; do
  start "$LARGE" 800$GPU -c 16384 -ngl 99
done
