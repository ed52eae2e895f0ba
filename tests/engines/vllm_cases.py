"""The cases that are recorded from vLLM, and asked again by the live test: small configs, many settings.

The configs are written here, with the shapes of released families and few layers. Options are kvplan's own
keywords; `engine_args` says the same to vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.engines.vllm_processors import FILES

GIB = 2**30
Config = dict[str, Any]
Options = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One question; ``name`` is the key in the recorded file."""

    name: str
    gpu: str
    config: Config
    memory: int
    options: Options = field(default_factory=dict)


def _config(architecture: str, model_type: str, **keys: Any) -> Config:
    base = {"vocab_size": 1024, "torch_dtype": "bfloat16", "max_position_embeddings": 16384}
    return {"architectures": [architecture], "model_type": model_type, **base, **keys}


def _heads(hidden: int, layers: int, heads: int, kv: int, **more: Any) -> Config:
    return {
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        **more,
    }


def _latent(layers: int) -> Config:
    return {
        **_heads(1024, layers, 16, 16),
        "kv_lora_rank": 512,
        "q_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 256,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
    }


def _kinds(pattern: str, times: int) -> list[str]:
    words = {"s": "sliding_attention", "f": "full_attention", "l": "linear_attention", "c": "conv"}
    return [words[letter] for letter in pattern * times]


_MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
_INDEXER = {"index_head_dim": 128, "index_n_heads": 16, "index_topk": 2048}

CONFIGS: dict[str, Config] = {
    "llama": _config("LlamaForCausalLM", "llama", **_heads(2048, 7, 16, 4)),
    "llama-mha": _config("LlamaForCausalLM", "llama", **_heads(1024, 5, 16, 16)),
    "qwen3": _config("Qwen3ForCausalLM", "qwen3", **_heads(1024, 6, 16, 8, head_dim=128)),
    "phi3-longrope": _config(
        "Phi3ForCausalLM",
        "phi3",
        **_heads(1536, 4, 16, 16),
        original_max_position_embeddings=4096,
        pad_token_id=0,
        rope_scaling={"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48},
    ),
    "llama-linear-rope": _config(
        "LlamaForCausalLM",
        "llama",
        **_heads(1024, 3, 8, 2),
        rope_scaling={"rope_type": "linear", "factor": 2.5},
    ),
    "falcon": _config(
        "FalconForCausalLM",
        "falcon",
        hidden_size=1024,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_kv_heads=4,
        new_decoder_architecture=True,
        alibi=False,
    ),
    "mistral-window": _config("MistralForCausalLM", "mistral", **_heads(1024, 6, 16, 4), sliding_window=4096),
    "gemma2": _config(
        "Gemma2ForCausalLM", "gemma2", **_heads(1024, 10, 8, 4, head_dim=256), sliding_window=4096
    ),
    "gemma3": _config(
        "Gemma3ForCausalLM",
        "gemma3_text",
        **_heads(1024, 13, 8, 4, head_dim=256),
        sliding_window=512,
        sliding_window_pattern=6,
    ),
    "gpt-oss": _config(
        "GptOssForCausalLM",
        "gpt_oss",
        **_heads(1024, 9, 16, 4, head_dim=64),
        sliding_window=128,
        num_local_experts=8,
        num_experts_per_tok=2,
    ),
    "cohere2": _config(
        "Cohere2ForCausalLM", "cohere2", **_heads(1024, 8, 16, 4, head_dim=128), sliding_window=4096
    ),
    "olmo3": _config("Olmo3ForCausalLM", "olmo3", **_heads(1024, 8, 8, 8), sliding_window=1024),
    "exaone4": _config(
        "Exaone4ForCausalLM",
        "exaone4",
        **_heads(1024, 9, 8, 4),
        sliding_window=1024,
        layer_types=[*_kinds("sssf", 2), "full_attention"],
    ),
    "near-equal-kinds": _config(
        "Olmo3ForCausalLM",
        "olmo3",
        **_heads(1024, 25, 8, 8),
        sliding_window=256,
        layer_types=[*_kinds("sf", 12), "full_attention"],
    ),
    "mimo-v2": _config(
        "MiMoV2FlashForCausalLM",
        "mimo_v2_flash",
        **_heads(1024, 10, 16, 4, head_dim=192, v_head_dim=128),
        sliding_window=128,
        swa_num_attention_heads=16,
        swa_num_key_value_heads=8,
        swa_head_dim=192,
        swa_v_head_dim=128,
        hybrid_layer_pattern=[0, 1, 1, 1, 1, 0, 1, 1, 1, 1],
        moe_layer_freq=[0] * 10,
        add_swa_attention_sink_bias=True,
        partial_rotary_factor=0.334,
        swa_rope_theta=10000,
        layernorm_epsilon=1e-5,
        attention_value_scale=0.707,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=256,
        attention_bias=False,
        sliding_window_size=128,
    ),
    "deepseek-v2": _config("DeepseekV2ForCausalLM", "deepseek_v2", **_latent(5)),
    "deepseek-v3": _config("DeepseekV3ForCausalLM", "deepseek_v3", **_latent(6), num_nextn_predict_layers=1),
    "deepseek-v32": _config("DeepseekV32ForCausalLM", "deepseek_v32", **_latent(5), **_INDEXER),
    "mamba": _config(
        "MambaForCausalLM",
        "mamba",
        hidden_size=1024,
        num_hidden_layers=6,
        state_size=16,
        conv_kernel=4,
        expand=2,
        intermediate_size=2048,
    ),
    "mamba2": _config(
        "Mamba2ForCausalLM",
        "mamba2",
        hidden_size=1024,
        num_hidden_layers=6,
        num_heads=32,
        head_dim=64,
        state_size=128,
        n_groups=8,
        expand=2,
    ),
    "jamba": _config(
        "JambaForCausalLM",
        "jamba",
        **_heads(1024, 16, 16, 4),
        attn_layer_period=8,
        attn_layer_offset=4,
        mamba_d_state=16,
        mamba_d_conv=4,
        mamba_expand=2,
        num_experts=4,
        num_experts_per_tok=2,
    ),
    "nemotron-h": _config(
        "NemotronHForCausalLM",
        "nemotron_h",
        **_heads(1024, 9, 16, 4, head_dim=64),
        hybrid_override_pattern="M-M*M-M*M",
        mamba_num_heads=32,
        mamba_head_dim=64,
        ssm_state_size=128,
        n_groups=8,
        conv_kernel=4,
        expand=2,
    ),
    "granite-hybrid": _config(
        "GraniteMoeHybridForCausalLM",
        "granitemoehybrid",
        **_heads(1024, 10, 16, 4),
        layer_types=["mamba"] * 4 + ["attention"] + ["mamba"] * 4 + ["attention"],
        mamba_n_heads=32,
        mamba_d_head=64,
        mamba_d_state=128,
        mamba_n_groups=1,
        mamba_expand=2,
        num_local_experts=0,
        shared_intermediate_size=2048,
    ),
    "falcon-h1": _config(
        "FalconH1ForCausalLM",
        "falcon_h1",
        **_heads(1024, 5, 16, 4, head_dim=64),
        mamba_d_ssm=2048,
        mamba_n_heads=32,
        mamba_d_head=64,
        mamba_d_state=128,
        mamba_n_groups=1,
    ),
    "lfm2": _config(
        "Lfm2ForCausalLM",
        "lfm2",
        **_heads(1024, 8, 16, 4),
        conv_L_cache=3,
        conv_dim=1024,
        conv_dim_out=1024,
        block_dim=1024,
        block_ff_dim=2048,
        block_multiple_of=256,
        block_ffn_dim_multiplier=1.0,
        block_auto_adjust_ff_dim=False,
        layer_types=_kinds("ccfc", 2),
    ),
    "qwen3-next": _config(
        "Qwen3NextForCausalLM",
        "qwen3_next",
        **_heads(1024, 8, 16, 2, head_dim=256),
        **_MOE,
        linear_num_key_heads=16,
        linear_num_value_heads=32,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
        shared_expert_intermediate_size=256,
    ),
    "qwen3.5": _config(
        "Qwen3_5ForCausalLM",
        "qwen3_5_text",
        **_heads(1024, 8, 16, 4, head_dim=256),
        linear_num_key_heads=16,
        linear_num_value_heads=32,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
        mamba_ssm_dtype="float32",
    ),
    "whisper": {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "torch_dtype": "float16",
        "vocab_size": 51866,
        "d_model": 512,
        "encoder_layers": 3,
        "decoder_layers": 5,
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 1024,
        "decoder_ffn_dim": 1024,
        "num_mel_bins": 128,
        "max_source_positions": 1500,
        "max_target_positions": 448,
    },
}

_EVERYWHERE: tuple[Options, ...] = (
    {},
    {"tensor_parallel_size": 2},
    {"tensor_parallel_size": 8, "max_model_len": 3001},
    {"kv_cache_dtype": "fp8", "max_model_len": 4096},
    {"block_size": 64},
    {"usage": "llm", "max_model_len": 8000},
    {"max_num_batched_tokens": 2048, "max_num_seqs": 64},
    {"pipeline_parallel_size": 3},
    {"disable_hybrid_kv_cache_manager": True},
    {"dtype": "float16"},
)
_DENSE: tuple[Options, ...] = (
    {"kv_cache_dtype": "int8_per_token_head"},
    {"kv_cache_dtype": "fp8_e5m2"},
    {"num_gpu_blocks_override": 700},
)
_STATES: tuple[Options, ...] = (
    {"enable_prefix_caching": False},
    {"enable_prefix_caching": False, "tensor_parallel_size": 4},
    {"mamba_ssm_cache_dtype": "float32"},
    {"mamba_cache_dtype": "float32", "tensor_parallel_size": 2},
)
_DRAFTS: tuple[Options, ...] = (
    {"speculative_method": "mtp", "num_speculative_tokens": 1},
    {"speculative_method": "mtp", "num_speculative_tokens": 3, "tensor_parallel_size": 2},
)
_MORE: dict[str, tuple[Options, ...]] = {
    **dict.fromkeys(("llama", "mistral-window", "gemma3", "gpt-oss"), _DENSE),
    **dict.fromkeys(
        ("mamba2", "jamba", "nemotron-h", "granite-hybrid", "falcon-h1", "lfm2", "qwen3-next", "qwen3.5"),
        _STATES,
    ),
    "deepseek-v3": _DRAFTS,
    "llama-linear-rope": ({"max_model_len": 40960}, {"max_model_len": 40961}),
    "qwen3": (
        {"kv_cache_dtype": "turboquant_k8v4"},
        {"kv_cache_dtype": "int4_per_token_head"},
        {"tensor_parallel_size": 16, "decode_context_parallel_size": 2},
    ),
}
_OTHER_CARDS = (
    "llama",
    "gemma2",
    "gemma3",
    "gpt-oss",
    "deepseek-v3",
    "deepseek-v32",
    "qwen3-next",
    "mimo-v2",
)
_ON_OTHER_CARDS: tuple[Options, ...] = (
    {},
    {"kv_cache_dtype": "fp8"},
    {"usage": "llm", "max_model_len": 5000},
)
_SMALL = {"llama": 40 * 2**20, "gemma3": 30 * 2**20, "deepseek-v3": 100 * 2**20, "qwen3-next": 60 * 2**20}
MEMORY = 3 * GIB


def cases() -> Iterator[Case]:
    """Every case, grouped by card."""
    for name, config in CONFIGS.items():
        for options in (*_EVERYWHERE, *_MORE.get(name, ())):
            yield _case(name, "h100", config, MEMORY, options)
        if name in _SMALL:
            yield _case(name, "h100", config, _SMALL[name], {})
    for card in ("a100", "l40s", "b200"):
        for name in _OTHER_CARDS:
            for options in _ON_OTHER_CARDS:
                yield _case(name, card, CONFIGS[name], MEMORY, options)


def _case(name: str, card: str, config: Config, memory: int, options: Options) -> Case:
    words = [f"{key}={value}" for key, value in options.items()]
    if memory != MEMORY:
        words.append(f"memory={memory}")
    return Case(" ".join([name, f"gpu={card}", *words]), card, config, memory, options)


def engine_args(options: Options) -> dict[str, Any]:
    """The same options as vLLM's engine arguments."""
    named = {key: value for key, value in options.items() if key not in ("usage", "speculative_method")}
    tokens = named.pop("num_speculative_tokens", None)
    if tokens is not None:
        named["speculative_config"] = {
            "method": options["speculative_method"],
            "num_speculative_tokens": tokens,
        }
    return named


def question(case: Case) -> dict[str, Any]:
    """The line that `vllm_ask` reads."""
    files = next((FILES[name] for name in case.config.get("architectures", ()) if name in FILES), {})
    return {
        "gpu": case.gpu,
        "config": case.config,
        "files": files,
        "memory": case.memory,
        "args": engine_args(case.options),
        "usage": case.options.get("usage", "server"),
    }
