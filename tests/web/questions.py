"""Questions for the page: as many as asked for, the same ones every time."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

MODELS = (
    "qwen3-32b", "llama-3.1-8b", "llama-3.3-70b", "gpt-oss-120b", "gemma-3-27b", "deepseek-v3",
    "qwen3-30b-a3b", "qwen3-next-80b-a3b", "nemotron-h-56b", "mistral-small-3.2-24b", "phi-4",
    "glm-4.5-air", "no-such-model",
)  # fmt: skip
GPUS = ("h100", "h200", "b200", "l40s", "a100-80gb", "mi300x", "rtx-4090", "80GiB", "")
ENGINES = ("", "", "vllm", "sglang", "trtllm", "transformers", "vllm@0.19")
TOKENS = ("", "1k", "4096", "32k", "131072", "1,024,000", "0", "x")
REQUESTS = ("1", "", "8", "200")
FORMATS = ("", "auto", "fp8", "nvfp4", "int3")
MORE = ("", "", "", "--gpu-memory-utilization 0.85", "--max-num-seqs 16", "--nosuch", "--pp 2", "'")
PASTED = (
    "vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 --max-model-len 32k --foo 3",
    "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 2 --port 30000",
    "docker run --gpus all vllm/vllm-openai:v0.19.0 --model openai/gpt-oss-20b",
    '{"model_type": "llama", "hidden_size": 64}', "{", "", "ls -l", "<script>alert(1)</script>",
)  # fmt: skip
LOG = (Path(__file__).parents[1] / "cli" / "golden" / "inputs" / "budget.log").read_text(encoding="utf-8")
Asked = tuple[str, list[Any]]


def questions(number: int, seed: int = 16) -> list[Asked]:
    """(what is asked, its arguments): answers, plans, other commands' screens, and what is pasted."""
    draw = random.Random(seed)
    found: list[Asked] = [("read", [text]) for text in PASTED]
    form = {"model": "qwen3-8b", "gpu": "l40s", "tokens": "4k", "requests": "2"}
    found += [("screen", ["plan", form]), ("screen", ["compare", form, LOG]), ("screen", ["compare", form])]
    while len(found) < number:
        fields = {
            "model": draw.choice(MODELS), "gpu": draw.choice(GPUS), "engine": draw.choice(ENGINES),
            "tokens": draw.choice(TOKENS), "requests": draw.choice(REQUESTS),
            "kv_cache_dtype": draw.choice(FORMATS), "more": draw.choice(MORE),
            "gpus": str(draw.choice((1, 1, 2, 4, 8))),
        }  # fmt: skip
        found.append(("plan" if len(found) % 8 == 0 else "answer", [fields]))
    return found


def line_of(asked: Asked) -> str:
    return json.dumps({"what": asked[0], "given": json.dumps(asked[1])})
