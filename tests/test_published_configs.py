"""Every published config is sized by engine ``generic``, or refused for a reason that stands here."""

from __future__ import annotations

import contextlib

import pytest

import kvplan
from kvplan.engines import ENGINES
from kvplan.errors import KvplanError
from tests.laws.sampling import for_each
from tests.recorded import as_published, config_names, model_of

NAMES = config_names()

# Name → the error code that refuses it. None is refused today.
REFUSED: dict[str, str] = {}
# Name → the words that a warning must have; every other file is read without a warning.
WARNED = {
    "stepfun-ai__Step-3.7-Flash": "no text_config",
    "stepfun-ai__Step-3.7-Flash-FP8": "no text_config",
    "llava-hf__llava-1.5-7b-hf": "does not state text_config.num_hidden_layers: 32",
    **dict.fromkeys(
        (
            "baichuan-inc__Baichuan2-7B-Chat",
            "internlm__internlm-chat-7b",
            "microsoft__phi-1_5",
            "microsoft__phi-2",
        ),
        "states no KV heads",
    ),
}
# Beside the engine that sizes everything: custom code and new types that the others have no class for.
OTHER_ENGINES = [name for name in ("transformers", "vllm") if name in ENGINES]


READ_AGAIN = (
    "runs",
    "draft_layers",
    "encoder",
    "facts",
    "max_model_len",
    "quantization",
    "dtype",
    "warnings",
)


@for_each("name", NAMES)
def test_sized_or_refused(name: str) -> None:
    if name in REFUSED:
        with pytest.raises(KvplanError) as caught:
            model_of(name)
        assert caught.value.code == REFUSED[name]
        return
    model = model_of(name)
    words = WARNED.get(name)
    if words is None:
        assert model.warnings == ()
    else:
        assert any(words in warning for warning in model.warnings)
    result = kvplan.size(model, engine="generic", tokens=4096)
    assert result.per_gpu.kv_bytes > 0
    assert model.num_layers > 0
    assert model.provenance.keys
    whole = as_published(name)
    if whole is not None:
        assert [getattr(model, key) for key in READ_AGAIN] == [getattr(whole, key) for key in READ_AGAIN], (
            "the record lacks a key: run python -m scripts.record_configs"
        )


@pytest.mark.parametrize("engine", OTHER_ENGINES)
def test_other_engines_answer_or_refuse(engine: str) -> None:
    for name in NAMES:
        with contextlib.suppress(KvplanError):
            kvplan.size(model_of(name), engine=engine, tokens=2048)


# Bytes of one more token in bf16, worked out by hand: layers × kv heads × (K width + V width) × 2 B.
PER_TOKEN = {
    "meta-llama__Llama-3.1-8B": 32 * 8 * 256 * 2,
    "Qwen__Qwen2.5-7B": 28 * 4 * 256 * 2,
    "Qwen__Qwen3-235B-A22B": 94 * 4 * 256 * 2,
    "THUDM__chatglm3-6b": 28 * 2 * 256 * 2,
    "baichuan-inc__Baichuan2-7B-Chat": 32 * 32 * 256 * 2,
    "internlm__internlm2-chat-7b": 32 * 8 * 256 * 2,
    "internlm__internlm-chat-7b": 32 * 32 * 256 * 2,
    "OrionStarAI__Orion-14B-Chat": 40 * 40 * 256 * 2,
    "openbmb__MiniCPM-MoE-8x2B": 40 * 36 * 128 * 2,
    "deepseek-ai__deepseek-moe-16b-base": 28 * 16 * 256 * 2,
    "microsoft__phi-2": 32 * 32 * 160 * 2,
    "microsoft__Phi-3.5-vision-instruct": 32 * 32 * 192 * 2,
    "XiaomiMiMo__MiMo-7B-Base": 36 * 8 * 256 * 2,
    "bigcode__starcoder": 40 * 1 * 256 * 2,
    "tiiuae__falcon-40b": 60 * 8 * 128 * 2,
    "tiiuae__falcon-7b": 32 * 1 * 128 * 2,
    "databricks__dbrx-instruct": 40 * 8 * 256 * 2,
    "mosaicml__mpt-7b": 32 * 32 * 256 * 2,
    "bigscience__bloom": 70 * 112 * 256 * 2,
    "google__gemma-7b": 28 * 16 * 512 * 2,
    "llava-hf__llava-1.5-7b-hf": 32 * 32 * 256 * 2,
    "mistral-community__pixtral-12b": 40 * 8 * 256 * 2,
    "mistralai__Ministral-3-3B-Base-2512": 26 * 8 * 256 * 2,
    "Qwen__Qwen2.5-VL-7B-Instruct": 28 * 4 * 256 * 2,
    "meta-llama__Llama-3.2-90B-Vision-Instruct": 80 * 8 * 256 * 2,
    "nvidia__Llama-3_3-Nemotron-Super-49B-v1": 49 * 8 * 256 * 2,
    "MiniMaxAI__MiniMax-Text-01": 10 * 8 * 256 * 2,
    "moonshotai__Kimi-K2.5": 61 * (512 + 64) * 2,
    "moonshotai__Kimi-Linear-48B-A3B-Instruct": 7 * (512 + 64) * 2,
    "moonshotai__Kimi-K3": 24 * (512 + 64) * 2,
    "facebook__bart-large-cnn": 12 * 16 * 128 * 2,
    "google__flan-t5-xl": 24 * 32 * 128 * 2,
    "openai__whisper-tiny": 4 * 6 * 128 * 2,
}


@pytest.mark.parametrize("name", PER_TOKEN)
def test_bytes_of_one_more_token(name: str) -> None:
    result = kvplan.size(
        model_of(name), engine="generic", tokens=300, dtype="bfloat16", kv_cache_dtype="bfloat16"
    )
    assert result.per_gpu.bytes_per_token == PER_TOKEN[name]


def test_samba_y() -> None:
    """Phi-4-mini-flash: nine Mamba states, eight windows, one full layer; the upper half keeps nothing."""
    model = model_of("microsoft__Phi-4-mini-flash-reasoning")
    counts = {layer.family: count for layer, count in model.distinct().items()}
    assert counts == {"mamba1": 9, "sliding_window": 8, "full_attention": 1, "no_cache": 7, "shared_kv": 7}
    state = 9 * (5120 * 3 * 2 + 5120 * 16 * 4)
    window, full = 8 * 512 * 20 * 128 * 2, 100_000 * 20 * 128 * 2
    assert kvplan.size(model, engine="generic", tokens=100_000).per_gpu.kv_bytes == state + window + full


def test_rwkv_state() -> None:
    """RWKV-5: two hidden vectors in bf16 and 40 matrices of 64 × 64 in fp32 a layer, whatever the length."""
    model = model_of("RWKV__rwkv-5-world-3b")
    result = kvplan.size(model, engine="generic", tokens=4096)
    assert result.per_gpu.kv_bytes == 32 * (2 * 2560 * 2 + 40 * 64 * 64 * 4)
    assert result.per_gpu.bytes_per_token == 0


@pytest.mark.parametrize(
    ("name", "scheme", "method"),
    [
        ("nvidia__GLM-5.1-NVFP4", "fp8", "modelopt"),
        ("nvidia__Qwen3-32B-NVFP4", "fp8", "modelopt"),
        ("nvidia__DeepSeek-V3-0324-NVFP4", None, "modelopt"),
        ("poolside__Laguna-XS.2-FP8", "fp8", "compressed-tensors"),
        ("RedHatAI__Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", None, "compressed-tensors"),
        ("deepseek-ai__DeepSeek-V3", None, "fp8"),
        ("openai__gpt-oss-20b", None, "mxfp4"),
        ("meta-llama__Llama-3.1-8B", None, None),
    ],
)
def test_kv_scheme_of_the_checkpoint(name: str, scheme: str | None, method: str | None) -> None:
    model = model_of(name)
    assert (model.kv_cache_scheme, model.quantization) == (scheme, method)


@pytest.mark.parametrize(
    ("name", "families"),
    [
        ("deepseek-ai__DeepSeek-V3", ["mla"]),
        ("deepseek-ai__DeepSeek-V3.2", ["mla+sparse_indexer"]),
        ("zai-org__GLM-5.2", ["mla+sparse_indexer"]),
        ("zai-org__GLM-4.5", ["full_attention"]),
        ("Qwen__Qwen3.5-27B", ["full_attention"]),
        ("Qwen__Qwen3-Next-80B-A3B-Thinking", ["full_attention"]),
        ("XiaomiMiMo__MiMo-V2-Flash", ["sliding_window"]),
        ("XiaomiMiMo__MiMo-7B-Base", ["full_attention"]),
        ("stepfun-ai__Step-3.7-Flash", ["full_attention"] * 3),
        ("nvidia__NVIDIA-Nemotron-3-Super-120B-A12B-FP8", ["full_attention"]),
        ("nvidia__NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", ["full_attention"]),
        ("moonshotai__Kimi-K2-Instruct", []),
        ("meta-llama__Llama-3.1-8B", []),
    ],
)
def test_prediction_layers(name: str, families: list[str]) -> None:
    assert [layer.family for layer in model_of(name).draft_layers] == families


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("internlm__internlm2_5-7b-chat", 65536),  # dynamic rope scaling: 2 × 32,768
        ("CohereForAI__c4ai-command-r-v01", 131072),  # model_max_length, not max_position_embeddings
        ("google__gemma-3-27b-it", 131072),  # linear factor 8, already counted
        ("microsoft__Phi-3-mini-128k-instruct", 131072),
        ("openai__whisper-large-v3", 448),
        ("mosaicml__mpt-7b", 2048),
        ("THUDM__chatglm3-6b", 8192),
        ("google__flan-t5-xl", 512),
        ("RWKV__rwkv-5-world-3b", 4096),
        ("state-spaces__mamba-2.8b-hf", None),
    ],
)
def test_longest_context(name: str, length: int | None) -> None:
    assert model_of(name).max_model_len == length
