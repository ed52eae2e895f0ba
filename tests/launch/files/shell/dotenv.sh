export $(grep -v '^#' settings.env | xargs)
docker run --rm --env-file more.env vllm/vllm-openai:v0.27.1 --model Qwen/Qwen3-8B
llama-server -hf "$SMALL" -c 4096
