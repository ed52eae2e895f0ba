from vllm import LLM

TP = 2
llm = LLM(model="Qwen/Qwen3-8B", tensor_parallel_size=TP, max_model_len=8192, gpu_memory_utilization=0.85)
print(llm.generate("--tensor-parallel-size 4"))
