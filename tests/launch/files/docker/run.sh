IMG=vllm/vllm-openai:v0.27.1
docker build -t vllm . && docker rm -f vllm-openai
docker run -d --rm --gpus '"device=2,3"' -e HF_TOKEN -v ~/.cache:/root/.cache $DOCKER_ARGS --name vllm-openai $IMG \
  --model Qwen/Qwen3-32B --tensor-parallel-size 2
