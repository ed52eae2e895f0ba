"""Classes of which no public config is packaged: a config each, made up of the keys that vLLM's class reads.

The sizes are nobody's model. What is asked is whether the same keys make the same cache and weights. Read:
vllm-project/vllm 0.33 vllm/model_executor/models/, vllm/models/, vllm/transformers_utils/configs/.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kvplan.architectures.inventory import inventory_of
from kvplan.dtypes import scalar
from kvplan.weights.ranks import Parallel, bytes_by_stage
from tests.engines.vllm_cases import CONFIGS, GIB, Case, Config, Options, question
from tests.engines.vllm_own_cases import OWN
from tests.engines.vllm_release_compare import verdict
from tests.engines.vllm_stage import CARDS
from tests.weights.parameters import parameters_by_stage

RELEASE = "0.33.0"
MEMORY = 40 * GIB


@dataclass(frozen=True)
class Made:
    """A made-up config. like: the transformers type whose config class stands in for the one that lies
    beside the checkpoint; turns: settings of its own besides those of its kind; weights: whether the
    parameters are held against kvplan's count (not where buffers are among them)."""

    config: Config
    like: str = ""
    turns: tuple[Options, ...] = ()
    kind: str = "heads"
    drafts: tuple[int, ...] = field(default=())
    weights: bool = True


def _text(architecture: str, model_type: str, layers: int = 4, **keys: Any) -> Config:
    return {
        "architectures": [architecture], "model_type": model_type, "vocab_size": 1024,
        "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": layers,
        "num_attention_heads": 16, "num_key_value_heads": 4, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "max_position_embeddings": 16384, "tie_word_embeddings": False, "dtype": "bfloat16",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, **keys,
    }  # fmt: skip


_MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "norm_topk_prob": True}
_LATENT = {
    "kv_lora_rank": 512, "q_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}  # fmt: skip


def _domyn() -> Config:
    windows = [[-1, 0], [1024, 0], [1024, 0], [-1, 0], [1024, 0], [-1, 0]]
    widths = [128 if window[0] < 0 else 64 for window in windows]
    return _text(
        "DomynEdgeForCausalLM", "domynedge", 6, window_sizes=windows,
        position_layers=["nope" if window[0] < 0 else "rope" for window in windows],
        per_layer_config={str(index): {"head_dim": width} for index, width in enumerate(widths)},
        head_dim=128,
    )  # fmt: skip


def _k2(**keys: Any) -> Config:
    config = _text(
        "K2HorizonForCausalLM", "k2_horizon", 5, head_dim=64, rope_head_dim=32, query_key_norm=True,
        attention_bias=False, attention_gate_func="softplus", mlp_only_layers=[0], decoder_sparse_step=1,
        num_shared_experts=1, moe_gate_bias=True, mova_num_experts=4, mova_num_experts_per_tok=2,
        router_score_func="sigmoid", router_scaling_factor=2.5, layernorm_num_groups=2, **_MOE,
    )  # fmt: skip
    return {**config, **keys}


def _alice() -> Config:
    words = ["full_attention" if index % 4 == 3 else "linear_attention" for index in range(8)]
    return _text(
        "AliceAIForCausalLM", "alice_ai", 8, layer_types=words, linear_num_key_heads=8,
        linear_num_value_heads=8, linear_key_head_dim=128, linear_value_head_dim=128, head_dim=128,
        linear_conv_kernel_dim=4, shared_expert_intermediate_size=512, block_attn_res_block_size=4,
        kda_allow_negative_eigenvalues=False, router_score_function="sigmoid", attention_bias=False,
        router_bias_correction=True, partial_rotary_factor=0.25, decoder_sparse_step=1,
        mlp_only_layers=[], **_MOE,
    )  # fmt: skip


def _dory(**keys: Any) -> Config:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
    config = _text("DoryForCausalLM", "dory", 16, head_dim=64, sliding_window=1024, n_input_layers=4)
    both = {"sliding_attention": rope, "full_attention": rope}
    return {**config, "rope_parameters": both, "n_output_layers": 2, "n_recurrent_loops": 3, **keys}


def _bailing_25() -> Config:
    return _text(
        "BailingMoeV2_5ForCausalLM", "bailing_hybrid", 8, **_LATENT, head_dim=64,
        layer_group_size=4, group_norm_size=4, use_qk_norm=True, use_bias=False, use_qkv_bias=False,
        num_shared_experts=1, first_k_dense_replace=1, score_function="sigmoid", n_group=4, topk_group=2,
        moe_router_enable_expert_bias=True, moe_shared_expert_intermediate_size=256, router_dtype="fp32",
        routed_scaling_factor=2.5, partial_rotary_factor=0.5, rope_interleave=True,
        num_nextn_predict_layers=1, **_MOE,
    )  # fmt: skip


_SHARED = {"num_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2}
_ROUTED = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
}  # fmt: skip


def _pangu(architecture: str, model_type: str, **keys: Any) -> Config:
    return _text(architecture, model_type, **{**_ROUTED, "rope_theta": 10000.0, "is_causal": True, **keys})


def _step3() -> Config:
    return _text(
        "Step3TextForCausalLM", "step3_text", num_attention_groups=1, head_dim=128, share_q_dim=512,
        moe_num_experts=8, moe_top_k=2, moe_intermediate_size=256, share_expert_dim=256,
        norm_expert_weight=True, moe_layers_enum="1,2,3", max_position_embedding=16384, max_seq_len=16384,
    )  # fmt: skip


def _plamo3() -> Config:
    return _text(
        "Plamo3ForCausalLM", "plamo3", 8, head_dim=64, interleaved_sliding_window=[1024, None] * 4,
        window_size=1024, sliding_window_pattern=2, rope_local_theta=10000,
        layer_types=["sliding_attention", "full_attention"] * 4,
    )  # fmt: skip


def _words(pattern: str, times: int = 1) -> list[str]:
    words = {"s": "sliding_attention", "f": "full_attention", "i": "indexed_attention"}
    return [words[letter] for letter in pattern * times]


def _beam() -> Config:
    return _text(
        "BeamForCausalLM", "beam", 12, head_dim=64, layer_types=_words("sssssf", 2), sliding_window=512,
        mlp_layer_types=["dense"] * 3 + ["sparse"] * 9, final_logit_softcapping=30.0, attention_bias=False,
        n_group=4, topk_group=2, routed_scaling_factor=2.5,
        rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}, **_MOE,
    )  # fmt: skip


def _flint() -> Config:
    return _text(
        "FlintForCausalLM", "flint", 9, head_dim=128, layer_types=_words("ff" + "sssf" + "sss"),
        sliding_window=513, shared_expert_intermediate_size=512, mlp_only_layers=[0, 1],
        decoder_sparse_step=1, attention_bias=False, router_score_function="sigmoid",
        use_sliding_window=True, **_MOE,
    )  # fmt: skip


def _kolibri() -> Config:
    return _text(
        "Kolibri1ForCausalLM", "kolibri1", 10, head_dim=64, layer_types=_words("ssssf", 2),
        sliding_window=513, num_local_experts=8, num_experts_per_tok=2, moe_intermediate_size=256,
        shared_expert_intermediate_size=512,
    )  # fmt: skip


def _hy4() -> Config:
    return _text(
        "HYV4ForCausalLM", "hy_v4", 6, **{**_ROUTED, "first_k_dense_replace": 1}, **_LATENT, head_dim=64,
        layer_types=_words("i", 6), indexer_types=["full", "full", "shared", "shared", "shared", "full"],
        mlp_layer_types=["dense", *["sparse"] * 5], index_topk=2048, index_head_dim=128, index_n_heads=16,
        hc_mult=4, hc_magnitude=2.0, hc_eps=1e-6, learnable_sink_init=0.0, swiglu_limit=10.0,
        n_group=1, topk_group=1, attention_bias=False, num_nextn_predict_layers=1,
    )  # fmt: skip


def _wrapped(architecture: str, model_type: str, key: str, text: Config, **more: Any) -> Config:
    return {"architectures": [architecture], "model_type": model_type, key: text, "dtype": "bfloat16", **more}


def _kimi_vl() -> Config:
    vision = {
        "model_type": "moonvit", "patch_size": 14, "init_pos_emb_height": 64, "init_pos_emb_width": 64,
        "num_attention_heads": 8, "num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512,
        "merge_kernel_size": [2, 2],
    }  # fmt: skip
    text = {**CONFIGS["deepseek-v3"], "num_nextn_predict_layers": 0}
    return _wrapped(
        "KimiVLForConditionalGeneration", "kimi_vl", "text_config", text, vision_config=vision,
        media_placeholder_token_id=1000,
    )  # fmt: skip


def _step3_vl() -> Config:
    vision = {
        "hidden_size": 256, "intermediate_size": 512, "output_hidden_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_channels": 3, "image_size": 728, "patch_size": 14,
        "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
    }  # fmt: skip
    text = {key: value for key, value in _step3().items() if key != "rope_parameters"}
    return _wrapped(
        "Step3VLForConditionalGeneration", "step3_vl", "text_config", text, vision_config=vision,
        understand_projector_stride=2, projector_bias=True, image_token_id=1000,
    )  # fmt: skip


_THREE_TO_ONE = ["sliding_attention"] * 3 + ["full_attention"]

MADE: dict[str, Made] = {
    "muse-glimmer-text": Made(
        {
            **_text("MuseGlimmerForCausalLM", "muse_glimmer_text", head_dim=64, sliding_window=512),
            "hidden_activation": "silu",
            "layer_types": _THREE_TO_ONE,
            "layer_rope_theta": [10000.0] * 3 + [0],
            "final_logit_softcapping": 20.0,
            "qk_scale_factor": 3.87,
            "output_multiplier": 0.2,
            "post_norm_eps": 1e-8,
        },
        weights=False,
    ),
    "exaone-moe-old-name": Made(
        _text(
            "ExaoneMoEForCausalLM",
            "exaone_moe",
            head_dim=64,
            num_shared_experts=1,
            n_group=1,
            topk_group=1,
            sliding_window=512,
            sliding_window_pattern=4,
            layer_types=_THREE_TO_ONE,
            mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
            first_k_dense_replace=1,
            routed_scaling_factor=2.5,
            **_MOE,
        ),
        weights=False,
    ),
    "iquest-loop": Made(
        _text("IQuestLoopCoderForCausalLM", "iquestloopcoder", loop_num=2, loop_window_size=64), "llama"
    ),
    "iquest-loop-3": Made(
        _text("IQuestLoopCoderForCausalLM", "iquestloopcoder", loop_num=3, loop_window_size=256), "llama"
    ),
    "domyn-edge": Made(_domyn(), "llama"),
    "k2-horizon": Made(_k2(), "llama"),
    "k2-horizon-dense": Made(
        _k2(num_experts=0, mova_num_experts=0, query_key_norm=False, attention_gate_func=None), "llama"
    ),
    "alice-ai": Made(_alice(), "qwen3_next", kind="states"),
    "dory": Made(_dory(), kind="one"),
    "dory-last": Made(_dory(recurrent_kv_cache_mode="last_loop"), kind="one"),
    "ling-2.6": Made(_bailing_25(), "llama", kind="states", drafts=(1,)),
    "beam": Made(_beam(), turns=({"block_size": 32, "tensor_parallel_size": 2},)),
    "flint": Made(_flint(), kind="flashinfer"),
    "kolibri": Made(_kolibri(), weights=False),
    "granite-swa": Made(
        _text("GraniteSWAForCausalLM", "granite_swa", 8, layer_types=_words("sssf", 2), sliding_window=512),
        turns=({"kv_cache_dtype": "fp8"},),
        kind="flashinfer",
    ),
    "hy-4": Made(_hy4(), kind="latent", drafts=(1, 2)),
    "mimo-v2-text": Made(
        {
            **CONFIGS["mimo-v2"],
            "architectures": ["MiMoV2ForCausalLM"],
            "model_type": "mimo_v2",
            "hidden_act": "silu",
            "tie_word_embeddings": False,
        },
        "plain",
    ),
    "glm5-next-text": Made(
        {**OWN["glm5-next"]["text_config"], "architectures": ["Glm5NextForCausalLM"], "dtype": "bfloat16"},
        kind="states",
        weights=False,
    ),
    "chatglm-2": Made(
        {
            "architectures": ["ChatGLMForConditionalGeneration"],
            "model_type": "chatglm",
            "num_layers": 4,
            "hidden_size": 1024,
            "ffn_hidden_size": 2048,
            "kv_channels": 64,
            "num_attention_heads": 16,
            "multi_query_attention": True,
            "multi_query_group_num": 4,
            "padded_vocab_size": 1024,
            "seq_length": 8192,
            "add_qkv_bias": True,
            "add_bias_linear": False,
            "rmsnorm": True,
            "torch_dtype": "bfloat16",
            "post_layer_norm": True,
            "apply_residual_connection_post_layernorm": False,
            "original_rope": True,
            "layernorm_epsilon": 1e-5,
            "rope_ratio": 1,
            "tie_word_embeddings": False,
        }
    ),
    "kimi-vl": Made(_kimi_vl(), kind="latent", weights=False),
    "step-3-vl": Made(_step3_vl(), kind="few", weights=False),
    "ling-lite": Made(
        _text(
            "BailingMoeForCausalLM",
            "bailing_moe",
            head_dim=64,
            use_bias=False,
            use_qkv_bias=False,
            num_shared_experts=2,
            embedding_dropout=0.0,
            output_dropout=0.0,
            first_k_dense_replace=0,
            **_MOE,
        ),
        "llama",
    ),
    "exaone-3": Made(
        _text(
            "ExaoneForCausalLM", "exaone", num_layers=4, activation_function="silu", layer_norm_epsilon=1e-5
        ),
        "llama",
    ),
    "iquest-coder": Made(_text("IQuestCoderForCausalLM", "iquestcoder", head_dim=64), "llama"),
    "llama-old-class": Made(_text("LLaMAForCausalLM", "llama")),
    "telechat-3": Made(_text("TeleChat3ForCausalLM", "telechat3", head_dim=64), "llama"),
    "solar-pro": Made(
        _text(
            "SolarForCausalLM",
            "solar",
            8,
            head_dim=64,
            sliding_window=1024,
            bskcn_1=[1],
            bskcn_2=[2],
            bskcn_3=[3],
            bskcn_4=[4],
            bskcn_tv=[0.9, 0.8],
        ),
        "llama",
    ),
    "step-3": Made(_step3()),
    "telechat-2": Made(
        _text(
            "TeleChat2ForCausalLM",
            "telechat",
            n_head=16,
            n_layer=4,
            ffn_hidden_size=2048,
            layer_norm_epsilon=1e-5,
        ),
        "llama",
    ),
    "teleflm": Made(
        _text("TeleFLMForCausalLM", "TeleFLM", use_mup=True, output_mult=1.0, mup_scale_factor=1.0), "llama"
    ),
    "param2": Made(
        _text(
            "Param2MoEForCausalLM",
            "param2moe",
            head_dim=64,
            rope_theta=10000.0,
            rope_scaling=None,
            score_function="sigmoid",
            moe_shared_expert_intermediate_size=512,
            use_qk_norm=True,
            use_bias=False,
            use_qkv_bias=False,
            **_MOE,
            **_SHARED,
        ),
        "plain",
    ),
    "sarvam": Made(
        _text(
            "SarvamMoEForCausalLM",
            "sarvam_moe",
            head_dim=64,
            use_rmsnorm=False,
            use_qk_norm=True,
            use_bias=False,
            use_qkv_bias=False,
            score_function="sigmoid",
            moe_router_enable_expert_bias=True,
            routed_scaling_factor=2.5,
            router_dtype="fp32",
            embedding_dropout=0.0,
            **_MOE,
            **_SHARED,
        ),
        "llama",
    ),
    "sarvam-mla": Made(
        _text(
            "SarvamMLAForCausalLM",
            "sarvam_mla",
            moe_shared_expert_intermediate_size=512,
            routed_scaling_factor=2.5,
            q_lora_rank=None,
            moe_router_enable_expert_bias=True,
            **{key: value for key, value in _LATENT.items() if key != "q_lora_rank"},
            **_MOE,
            **_SHARED,
        ),
        "llama",
        kind="latent",
    ),
    "phi-moe": Made(
        _text(
            "PhiMoEForCausalLM",
            "phimoe",
            num_local_experts=8,
            num_experts_per_tok=2,
            lm_head_bias=True,
            attention_bias=True,
            sliding_window=None,
        )
    ),
    "plamo-3": Made(_plamo3(), "llama"),
    "rnj-1": Made(
        _text(
            "Rnj1ForCausalLM",
            "gemma3_text",
            6,
            head_dim=64,
            attention_bias=False,
            sliding_window=1024,
            final_logit_softcapping=30.0,
            query_pre_attn_scalar=64,
            hidden_activation="gelu_pytorch_tanh",
            layer_types=["chunked_attention", "chunked_attention", "full_attention"] * 2,
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "chunked_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        ),
        kind="triton",
    ),
    "pangu-embedded": Made(
        _text("PanguEmbeddedForCausalLM", "PanguEmbedded", head_dim=64, bias=True), "llama"
    ),
    "pangu-ultra": Made(
        _pangu(
            "PanguUltraMoEForCausalLM",
            "pangu_ultra_moe",
            sandwich_norm=True,
            router_enable_expert_bias=True,
            **_LATENT,
        ),
        "deepseek_v3",
        kind="latent",
    ),
    "pangu-pro-2": Made(
        _pangu(
            "PanguProMoEV2ForCausalLM",
            "PanguProMoE",
            head_dim=128,
            v_channels=64,
            param_sink_number=128,
            param_sink_with_value=True,
            qk_nope_dim=96,
            qk_rope_dim=32,
            qkv_bias=False,
            sandwich_norm=True,
            num_key_value_heads=4,
        ),
        "llama",
    ),
    "longcat-ngram": Made(
        _text(
            "LongcatFlashNgramForCausalLM",
            "longcat_flash_ngram",
            num_layers=2,
            ffn_hidden_size=2048,
            n_routed_experts=8,
            moe_topk=2,
            zero_expert_num=4,
            zero_expert_type="identity",
            expert_ffn_hidden_size=256,
            mla_scale_q_lora=True,
            mla_scale_kv_lora=True,
            emb_neighbor_num=4,
            emb_split_num=4,
            ngram_vocab_size_ratio=2,
            routed_scaling_factor=2.5,
            router_bias=False,
            eos_token_id=2,
            pad_token_id=3,
            **_LATENT,
        ),
        "longcat_flash",
        kind="latent",
    ),
}
STEP5: Config = {
    "architectures": ["Step5ForCausalLM"], "model_type": "step5", "hidden_size": 1024, "vocab_size": 1024,
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_attention_groups": 4, "head_dim": 192,
    "intermediate_size": 2048, "sliding_window": 512, "moe_num_experts": 8, "moe_intermediate_size": 256,
    "max_position_embeddings": 8192, "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sparse_config": {"enabled": True},
}  # fmt: skip
"""Refused by the part that is not described."""
TURNS: dict[str, tuple[tuple[str, Options], ...]] = {
    "heads": (
        ("h100", {}),
        ("h100", {"tensor_parallel_size": 4}),
        ("h100", {"tensor_parallel_size": 8}),
        ("h100", {"pipeline_parallel_size": 2}),
        ("h100", {"kv_cache_dtype": "fp8", "max_model_len": 5000}),
        ("h100", {"block_size": 64}),
        ("h100", {"decode_context_parallel_size": 2, "tensor_parallel_size": 8}),
        ("b200", {}),
    ),
    "latent": (
        ("h100", {}),
        ("h100", {"tensor_parallel_size": 4}),
        ("h100", {"pipeline_parallel_size": 2}),
        ("h100", {"kv_cache_dtype": "fp8", "max_model_len": 5000}),
        ("h100", {"decode_context_parallel_size": 2, "tensor_parallel_size": 4}),
        ("b200", {}),
    ),
    "states": (
        ("h100", {}),
        ("h100", {"tensor_parallel_size": 4}),
        ("h100", {"pipeline_parallel_size": 2}),
        ("h100", {"kv_cache_dtype": "fp8", "max_model_len": 5000}),
        ("h100", {"enable_prefix_caching": False}),
        ("h100", {"mamba_cache_dtype": "float32"}),
        ("b200", {}),
    ),
    "one": (
        ("h100", {}),
        ("h100", {"kv_cache_dtype": "fp8", "max_model_len": 5000}),
        ("h100", {"tensor_parallel_size": 2}),
        ("h100", {"pipeline_parallel_size": 2}),
        ("b200", {}),
    ),
    "flashinfer": (
        ("rtx-pro-6000", {}),
        ("rtx-pro-6000", {"tensor_parallel_size": 4}),
        ("rtx-pro-6000", {"pipeline_parallel_size": 2}),
        ("rtx-pro-6000", {"kv_cache_dtype": "fp8", "max_model_len": 5000}),
        ("a100-flashinfer", {"block_size": 32}),
        ("a100-flashinfer", {"attention_backend": "FLASHINFER"}),
    ),
    "triton": (
        ("h100", {"attention_backend": "TRITON_ATTN"}),
        ("h100", {"attention_backend": "TRITON_ATTN", "tensor_parallel_size": 4}),
        ("h100", {"attention_backend": "TRITON_ATTN", "pipeline_parallel_size": 2}),
        ("h100", {"attention_backend": "TRITON_ATTN", "max_model_len": 3000}),
    ),
    "few": (("h100", {}), ("h100", {"tensor_parallel_size": 2}), ("h100", {"pipeline_parallel_size": 2})),
}
"""Settings by what a config keeps, and the GPU they are asked on."""


def class_cases() -> Iterator[Case]:
    """Every config with the settings of its kind, grouped by GPU."""
    listed: list[tuple[str, str, Options]] = []
    for name, made in MADE.items():
        listed += [(name, gpu, options) for gpu, options in TURNS[made.kind]]
        listed += [(name, "h100", options) for options in made.turns]
        for count in made.drafts:
            listed.append((name, "h100", {"speculative_method": "mtp", "num_speculative_tokens": count}))
    for name, gpu, options in sorted(listed, key=lambda entry: entry[1]):
        words: list[Any] = [f"{key}={value}" for key, value in options.items()]
        yield Case(" ".join([name, f"gpu={gpu}", *words]), gpu, MADE[name].config, MEMORY, options)


def class_question(case: Case) -> dict[str, Any]:
    """The line that `vllm_ask` reads: the weights are asked too, where nothing is quantised."""
    made = MADE[case.name.split()[0]]
    return {**question(case), "weights": made.weights, **({"like": made.like} if made.like else {})}


def difference(case: Case, answer: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """`verdict` of the cache, and ``weights`` of every stage where the answer has them."""
    theirs = {key: value for key, value in answer.items() if key != "weights"}
    word, wrong = verdict(case, theirs, RELEASE)
    if "weights" in answer and word == "equal":
        ours = stage_weights(case)
        if ours != answer["weights"]:
            return "differs", {"weights": (ours, answer["weights"])}
    return word, wrong


def stage_weights(case: Case) -> list[list[int]]:
    """Parameters and bytes of each pipeline stage's ranks, as kvplan counts them."""
    options, inventory = case.options, inventory_of(case.config)
    parallel = Parallel(
        options.get("tensor_parallel_size", 1),
        options.get("pipeline_parallel_size", 1),
        1,
        False,
        CARDS[case.gpu].capability,
    )
    numbers = parameters_by_stage(inventory, parallel)
    return [
        list(pair)
        for pair in zip(numbers, bytes_by_stage(inventory, parallel, scalar("bfloat16")), strict=True)
    ]
