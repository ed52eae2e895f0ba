case "$1" in
  small) M=Qwen/Qwen3-8B ;;
  large) M=Qwen/Qwen3-32B ;;
esac
if [ "$ENGINE" = sglang ]; then
  python3 -m sglang.launch_server --model-path $M
else
  vllm serve $M --max-model-len 8192
fi
