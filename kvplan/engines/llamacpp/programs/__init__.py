"""Programs in front of llama.cpp, which choose its options: Ollama and LM Studio."""
