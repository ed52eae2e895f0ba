#!/bin/bash
export LEN=4096
TP=2
python3 -u - <<PY
from vllm import LLM
LLM(model="Qwen/Qwen3-8B", tensor_parallel_size=$TP)
PY
python - --model Qwen/Qwen3-1.7B <<'PY'
import argparse, os, subprocess
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen3-0.6B")
args = parser.parse_args()
subprocess.run(["vllm", "serve", args.model, "--max-model-len", os.environ["LEN"]])
PY
nohup python -c "from vllm import LLM; LLM(model='Qwen/Qwen3-4B')" &
cat > run.py <<'PY'
import vllm
vllm.LLM("Qwen/Qwen3-14B")
PY
uv run python run.py
python -c "print('nothing')"
