"""vLLM's scheduler and block manager in virtual time, with its offload to host memory and storage."""
