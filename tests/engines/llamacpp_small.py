"""Small models of every architecture that llama.cpp knows and kvplan reads: keys alone, no config.

One set of keys serves all; what an architecture does not read it leaves alone. Numbers differ where they
may be taken for one another: heads, KV heads, widths of K and V, of windows and of states.
"""

from __future__ import annotations

from typing import Any

from kvplan.architectures.gguf.table import PLAIN, SPECIAL

LAYERS, HEADS, HIDDEN = 6, 8, 512
COMMON: dict[str, Any] = {
    "vocab_size": 320, "context_length": 8192, "embedding_length": HIDDEN, "features_length": HIDDEN,
    "block_count": LAYERS, "leading_dense_block_count": 1, "feed_forward_length": 384,
    "use_parallel_residual": False, "logit_scale": 1.0, "time_mix_extra_dim": 64,
    "time_decay_extra_dim": 128, "full_attention_interval": 2, "attention.head_count": HEADS,
    "attention.head_count_kv": 2, "attention.max_alibi_bias": 8.0, "attention.clamp_kqv": 1.0,
    "attention.layer_norm_epsilon": 1e-5, "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.group_norm_epsilon": 1e-5, "attention.group_norm_groups": 8, "attention.q_lora_rank": 96,
    "attention.kv_lora_rank": 512, "attention.relative_buckets_count": 8,
    "attention.sliding_window": 300, "attention.sliding_window_pattern": 2,
    "attention.indexer.head_count": 2, "attention.indexer.key_length": 128,
    "attention.indexer.top_k": 2048, "attention.indexer.block_size": 4, "attention.indexer.local_blocks": 1,
    "rope.dimension_sections": [16, 16, 16, 16], "rope.dimension_count": 64, "rope.freq_base": 10000.0,
    "expert_feed_forward_length": 192, "expert_shared_feed_forward_length": 192,
    "expert_latent_length": 384, "interleave_moe_layer_step": 2, "expert_count": 4, "expert_used_count": 2,
    "expert_shared_count": 1, "expert_gating_func": 2, "expert_group_scale": 1.0, "experts_per_group": 1,
    "expert_weights_scale": 1.0, "expert_weights_norm": True, "swiglu_clamp_exp": 7.0,
    "ssm.inner_size": 2 * HIDDEN, "ssm.conv_kernel": 4,
    "ssm.state_size": 128, "ssm.time_step_rank": HEADS, "ssm.group_count": 2, "kda.head_dim": 128,
    "wkv.head_size": 64, "shortconv.l_cache": 3, "token_shift_count": 2, "hyper_connection.count": 4,
    "hyper_connection.epsilon": 1e-6, "hyper_connection.magnitude": 2.0,
    "hyper_connection.sinkhorn_iterations": 2, "attention.decay_lora_rank": 64,
    "attention.iclr_lora_rank": 64, "attention.value_residual_mix_lora_rank": 32,
    "attention.gate_lora_rank": 64, "num_loops": 2, "attention.scale": 0.125, "residual_scale": 1.0,
    "embedding_scale": 1.0, "attention.temperature_length": 8192,
}  # fmt: skip
XIELU = {
    f"xielu.{key}": [number] * LAYERS
    for key, number in (("alpha_n", 1.0), ("alpha_p", 1.0), ("beta", 1.0), ("eps", 1e-7))
}
MLA = {
    "attention.head_count_kv": 1, "attention.key_length": 576, "attention.value_length": 512,
    "attention.key_length_mla": 192, "attention.value_length_mla": 128,
}  # fmt: skip
SOME = [0, 2, 0, 2, 0, 2]
"""KV heads of layers of which every second keeps a state."""
LISTED = [1, 0, 1, 1, 0, 1]
OWN: dict[str, dict[str, Any]] = {
    "minicpm3": {"attention.key_length": 96, "rope.dimension_count": 32, "attention.kv_lora_rank": 64},
    "plm": {"attention.key_length": 96, "rope.dimension_count": 32, "attention.kv_lora_rank": 64},
    "mamba": {"ssm.group_count": 0},
    "jamba": {"ssm.group_count": 0, "attention.head_count_kv": SOME},
    "arwkv7": {"token_shift_count": 1},
    "rwkv6qwen2": {"token_shift_count": 1},
    "rwkv6": {"time_mix_extra_dim": 32, "time_decay_extra_dim": 64},
    "chameleon": {"vocab_size": 10_240, "attention.head_count_kv": HEADS},
    "dots1": {"attention.head_count_kv": HEADS},
    "gemma4": {
        "embedding_length_per_layer_input": 64,
        "attention.shared_kv_layers": 2,
        "attention.key_length": 128,
        "attention.value_length": 128,
        "attention.key_length_swa": 64,
        "attention.value_length_swa": 64,
        "attention.sliding_window_pattern": LISTED,
        "rope.dimension_count_swa": 64,
    },
    "plamo2": {"attention.head_count_kv": SOME, "ssm.group_count": 0},
    **{name: MLA for name, arch in SPECIAL.items() if arch.mla},
    **{
        name: {"attention.head_count_kv": SOME}
        for name in ("granitehybrid", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe")
    },
    "bailingmoe3": {**MLA, "kda.gate_lower_bound": -5.0, "attention.head_count_kv": [0, 1, 0, 1, 0, 1]},
    "kimi-linear": {**MLA, "attention.head_count_kv": [0, 1, 0, 1, 0, 1]},
    "kimi-k3": {
        **MLA,
        "attn_res.block_size": 2,
        "activation.situ_beta": 1.0,
        "attention.head_count_kv": [0, 1, 0, 1, 0, 1],
    },
    "hy_v4": {**MLA, "attention.indexer.types": [1, 0, 0, 1, 0, 1]},
    "glm-dsa": {**MLA, "attention.indexer.types": [1, 0, 0, 1, 0, 1]},
    "hrm_text": {"hrm.layers_per_stack": 1, "hrm.h_cycles": 2, "hrm.l_cycles": 2},
    **{
        name: {"attention.sliding_window_pattern": LISTED}
        for name, arch in SPECIAL.items()
        if arch.window is not None and arch.window.pattern is None and name != "gemma4"
    },
}


def small(name: str) -> dict[str, Any]:
    """The keys of one architecture."""
    own = {**COMMON, **OWN.get(name, {})}
    found = {f"{name}.{key}": value for key, value in own.items()}
    return {"general.architecture": name, **found, **XIELU}


def every() -> dict[str, dict[str, Any]]:
    """``small:ARCHITECTURE`` → keys."""
    return {f"small:{name}": small(name) for name in sorted({*SPECIAL, *PLAIN})}
