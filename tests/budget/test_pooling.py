"""Models that vLLM serves to pool: embeddings and classes, by their class, their files or as asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.api.launching import started_readings
from kvplan.engines.vllm.start.architectures import GENERATING, is_pooling
from kvplan.own_options import OwnOptions
from kvplan.settings import Settings

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 150_000,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
POOLING = [{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
NEWER = [{"type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling", "path": "1_Pooling"}]
HEAD = 150_016 * 1024 * 2
"""Of a vocabulary that is padded to 64."""


def folder(path: Path, modules: object = None) -> str:
    (path / "config.json").write_text(json.dumps(CONFIG))
    if modules is not None:
        (path / "modules.json").write_text(modules if isinstance(modules, str) else json.dumps(modules))
    return str(path)


def lines(model: str, **options: Any) -> dict[str, int]:
    asked: dict[str, Any] = {"engine": "vllm@0.30", "gpu": "a100-sxm-80gb", "max_model_len": 8192, **options}
    budget = kvplan.size(model, **asked).budget
    assert budget is not None
    return {line.name: line.bytes for line in budget.lines}


@pytest.mark.parametrize(
    ("modules", "pools"),
    [
        (POOLING, True),
        (NEWER, True),
        (None, False),
        ([], False),
        ("{", False),
        ({"type": 1}, False),
        ([3], False),
    ],
)
def test_the_files_of_sentence_transformers_say_it(tmp_path: Path, modules: object, pools: bool) -> None:
    model = kvplan.load_model(folder(tmp_path, modules))
    assert is_pooling(model, Settings()) is pools


@pytest.mark.parametrize(
    ("name", "pools"),
    [
        ("Qwen/Qwen3-Embedding-0.6B", True), ("jinaai/jina-code-embeddings-1.5b", True),
        ("Qwen/Qwen3-Reranker-0.6B", False), ("Qwen/Qwen3-0.6B", False),
        ("mlx-community/gemma-4-12b-coder-fable5-composer2.5", False),
    ],
)  # fmt: skip
def test_of_an_id_its_name_says_it(name: str, pools: bool) -> None:
    assert is_pooling(kvplan.load_model(name), Settings()) is pools


def test_what_is_asked_for_goes_before(tmp_path: Path) -> None:
    model = kvplan.load_model(folder(tmp_path, POOLING))
    for word, pools in (("generate", False), ("pooling", True), ("auto", True)):
        assert is_pooling(model, Settings(own=OwnOptions.of({"runner": word}))) is pools


def test_it_has_neither_head_nor_sampler_nor_full_graphs(tmp_path: Path) -> None:
    """The head is not loaded (adapters.py); what samples is not made (gpu/model_runner.py); graphs are
    piecewise alone (config/vllm.py)."""
    path = folder(tmp_path)
    plain, pooled = lines(path), lines(path, runner="pooling")
    assert plain["weights"] - pooled["weights"] == HEAD
    assert "sampler states" in plain
    assert "sampler states" not in pooled
    assert pooled["activation peak"] <= plain["activation peak"]
    assert pooled["CUDA graphs"] < plain["CUDA graphs"]
    assert lines(path, runner="pooling", cudagraph_mode="piecewise")["CUDA graphs"] == pooled["CUDA graphs"]


@pytest.mark.parametrize(
    "name",
    [
        "qwen3-8b",
        "qwen2.5-7b",
        "llama-3.1-8b",
        "gemma-2-9b",
        "mistral-7b-v0.3",
        "qwen3-30b-a3b",
        "qwen3.5-9b",
    ],
)
@pytest.mark.parametrize("release", ["0.19", "0.26", "0.30", "0.33"])
def test_pooling_never_takes_more(name: str, release: str) -> None:
    """Law: the pool of a model that is served to pool is no smaller."""
    model = kvplan.load_model(name)
    assert model.architecture in GENERATING
    asked: dict[str, Any] = {"engine": f"vllm@{release}", "gpu": "h100", "max_model_len": 4096}
    plain = kvplan.size(model, settings={"runner": "generate"}, **asked).budget
    pooled = kvplan.size(model, settings={"runner": "pooling"}, **asked).budget
    assert plain is not None
    assert pooled is not None
    assert pooled.kv_pool_bytes >= plain.kv_pool_bytes


@pytest.mark.parametrize(
    ("release", "flag", "read"),
    [
        ("v0.30.0", "--runner pooling", "pooling"), ("v0.10.2", "--runner pooling", "pooling"),
        ("v0.10.2", "--task embed", "pooling"), ("v0.10.2", "--task generate", "generate"),
        ("v0.30.0", "", None),
    ],
)  # fmt: skip
def test_commands_say_it(release: str, flag: str, read: str | None) -> None:
    text = f"docker run vllm/vllm-openai:{release} --model Qwen/Qwen3-8B --max-model-len 8192 {flag}"
    (reading,) = started_readings(text, "h100")
    assert reading.plan is not None
    assert reading.plan.settings.own.get("runner") == read
    assert not reading.plan.unread
