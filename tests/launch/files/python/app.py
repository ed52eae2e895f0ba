import os
import subprocess

import modal
from vllm import LLM

MODEL = os.environ.get("MODEL", "Qwen/Qwen3-32B")
N_GPU = 2
app = modal.App("chat")


@app.function(gpu=f"H100:{N_GPU}")
def serve():
    cmd = ["vllm", "serve", MODEL, "--tensor-parallel-size", str(N_GPU)]
    cmd += ["--max-model-len", "16384"]
    if os.environ.get("EAGER"):
        cmd.append("--enforce-eager")
    subprocess.Popen(" ".join(cmd), shell=True)


def offline():
    settings = dict(max_model_len=8192, kv_cache_dtype="fp8")
    return LLM("Qwen/Qwen3-8B", **settings)
