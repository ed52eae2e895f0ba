"""What is accepted has an effect; what an engine does not have or a GPU cannot hold is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.engines import ENGINES
from kvplan.engines.budget import BUDGETS
from kvplan.engines.folders import having
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.record import field_names
from kvplan.settings import METHODS, Settings, known_method
from kvplan.units import GIB
from tests.laws.sampling import for_each

TABLES = {name: part.TABLE for name, part in having("command").items()}

TRIALS: dict[str, Any] = {
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 2,
    "data_parallel_size": 2,
    "decode_context_parallel_size": 2,
    "dtype": "float16",
    "kv_cache_dtype": "fp8",
    "mamba_cache_dtype": "float32",
    "mamba_ssm_cache_dtype": "float16",
    "block_size": 128,
    "max_model_len": 4096,
    "max_num_seqs": 3,
    "max_num_batched_tokens": 512,
    "enable_prefix_caching": False,
    "speculative_method": "mtp",
    "num_speculative_tokens": 1,
    "disable_hybrid_kv_cache_manager": True,
    "num_gpu_blocks_override": 100,
    "kv_cache_memory": 3 * GIB,
    "gpu": "h200",
    "attention_backend": "TRITON_ATTN",
    "async_scheduling": False,
    "usage": "llm",
    "cache_implementation": "static",
    "gpu_memory_utilization": Fraction(1, 2),
    "weights": 5 * GIB,
    "quantization": "fp8",
    "enforce_eager": True,
    "enable_expert_parallel": True,
    "cpu_offload_gb": 3,
    "encoder_tokens": 100,
    "tokens": 1000,
    "requests": 2,
    "speculative_model": "qwen3-0.6b",
}
"""A value of each setting that is not its default."""
MODELS = ("qwen3-8b", "gemma-3-12b", "qwen3-next-80b-a3b", "whisper-large-v3", "deepseek-v3")
ONLY_PASSED_ON = {
    "sglang": {"enforce_eager"},
    "trtllm": {"enforce_eager", "enable_prefix_caching", "enable_expert_parallel"},
    "llamacpp": {"enable_prefix_caching"},
}
"""Arguments of the engine that change no byte: they reach its command."""
CLASS_CACHE: dict[str, dict[str, Any]] = {
    "cache_implementation": {},
    "encoder_tokens": {},
    "max_model_len": {"cache_implementation": "static"},
}
"""Of transformers: what counts where requests have caches of their own."""
_RANKS = {"data_parallel_size", "tensor_parallel_size", "gpu"}
ASKED = {"tokens", "encoder_tokens", "requests"}
NOT_ONE_BY_ONE = {
    "answer_tokens",
    "gpus",  # how many replicas there are: the GPUs of a question's `gpu`
    "kv_cache_memory",
    "own",
    "media",
    "speculative_model",
    "num_speculative_tokens",
    "spread",  # says where the tensor-parallel size came from
    "starts",  # says where the cache's bytes came from
}


def outcome(model: str, engine: str, **options: Any) -> object:
    try:
        return kvplan.size(model, engine=engine, **options).model_dump()
    except KvplanError as error:
        return (error.code, error.message)


@for_each("engine", sorted(ENGINES))
@for_each("name", [name for name in field_names(Settings) if name not in NOT_ONE_BY_ONE])
def test_every_setting_counts_or_is_refused(engine: str, name: str) -> None:
    """No setting is swallowed: it changes an answer for some model, or the error names the engine's own."""
    more = {"num_speculative_tokens": 2} if name == "speculative_method" else {}
    if name in traits_of(engine).foreign:
        with pytest.raises(KvplanError) as caught:
            kvplan.size("qwen3-8b", engine=engine, tokens=100, **{name: TRIALS[name], **more})
        assert caught.value.code == "unknown-option"
        assert caught.value.help
        return
    if name in ONLY_PASSED_ON.get(engine, ()):
        assert name in TABLES[engine].settings
        return
    base: dict[str, Any] = {}
    if engine in BUDGETS and name not in ASKED:
        base = {"gpu": "b200"} if engine == "llamacpp" or name in _RANKS else {"gpu": "8xb200", "tp": 4}
    if engine == "transformers":
        base = {
            "gpu": "b200",
            "tokens": 100,
            **CLASS_CACHE.get(name, {"continuous_batching": True}),
        }
    if engine == "mlx" and name not in ASKED:
        base = {"gpu": "m3-ultra"}
    if engine == "llamacpp" and name != "weights":
        base["weights"] = 9 * GIB
    changed = {**base, **more, name: TRIALS[name]}
    if name == "tensor_parallel_size":
        changed.pop("tp", None)
    assert any(outcome(model, engine, **base) != outcome(model, engine, **changed) for model in MODELS)


def test_a_setting_of_one_of_several_engines_is_taken() -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size("qwen3-8b", engine="sglang", gpu_memory_utilization=0.8)
    assert "--mem-fraction-static" in caught.value.help[0]


@given(st.sampled_from(sorted(ENGINES)), st.integers(1, 80))
@settings(deadline=None, max_examples=60)
def test_no_engine_starts_more_stages_than_layers(engine: str, stages: int) -> None:
    assume(engine not in ("transformers", "tgi", "mlx") or stages == 1)
    found = kvplan.size("qwen3-8b", engine=engine, pp=stages, tokens=100, kv_cache_memory=GIB)
    if stages > 36:
        assert found.refusal is not None
        assert found.refusal.code == "pipeline-parallel"
        assert found.pool is None
    else:
        assert found.refusal is None or found.refusal.code != "pipeline-parallel"


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.19", "sglang", "trtllm"])
@given(st.sampled_from(["h100", "a100-40gb", "l40s", "b200"]), st.integers(1, 300))
@settings(deadline=None, max_examples=25)
def test_no_stated_pool_is_larger_than_what_the_gpu_has_left(engine: str, gpu: str, gib: int) -> None:
    budget = kvplan.size("qwen3-8b", engine=engine, gpu=gpu, tokens=100).budget
    assert budget is not None
    left = budget.total_bytes - sum(line.bytes for line in budget.lines)
    found = kvplan.size("qwen3-8b", engine=engine, gpu=gpu, tokens=100, kv_cache_memory=gib * GIB)
    too_large = found.refusal is not None and found.refusal.code == "pool-too-large"
    assert too_large == (gib * GIB > left)
    if too_large and found.refusal is not None and found.refusal.help:
        memory = found.refusal.help[0].removeprefix("--kv-cache-memory ")
        retried = kvplan.size("qwen3-8b", engine=engine, gpu=gpu, tokens=100, kv_cache_memory=memory)
        assert retried.refusal is None, "what help suggests works"


def test_blocks_beyond_the_card_are_refused() -> None:
    found = kvplan.size("qwen3-8b", gpu="h100", tokens=100, settings={"num_gpu_blocks_override": 10**6})
    assert found.refusal is not None
    assert found.refusal.code == "pool-too-large"


def test_what_can_have_no_effect_is_said() -> None:
    said = kvplan.size("qwen3-8b", tokens=100, quantization="fp8", settings={"max_loras": 8}).warnings
    assert any("max_loras" in text and "enable_lora" in text for text in said)
    assert any("quantization" in text and "--gpu" in text for text in said)
    named = kvplan.size("qwen3-8b", tokens=100, quantization="fp8", gpu="h100").warnings
    assert not any("no effect" in text for text in named)


@pytest.mark.parametrize("word", ["foo", "mpt", "eagle4", ""])
def test_unknown_methods_are_refused_everywhere(word: str) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size("qwen3-8b", settings={"speculative_method": word, "num_speculative_tokens": 5})
    assert caught.value.code == "bad-setting"
    assert caught.value.help


@pytest.mark.parametrize("word", [*METHODS, "deepseek_mtp", "MTP"])
def test_known_methods(word: str) -> None:
    assert known_method(word) in METHODS
