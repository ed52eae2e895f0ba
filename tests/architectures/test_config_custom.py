"""Model types that transformers does not know: described ones, and unknown ones that may be read or not."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.families import FullAttention, NoCache, SharedKv, SlidingWindow
from tests.architectures.configs import PLAIN, families, read, refused

# ---- custom code


@pytest.mark.parametrize(
    "model_type", ["baichuan", "internlm", "qwen", "xverse", "orion", "internlm2", "exaone"]
)
def test_every_head_has_its_own_kv_without_a_key(model_type: str) -> None:
    config = {key: value for key, value in PLAIN.items() if key != "num_key_value_heads"}
    part = read({"model_type": model_type, **config}).layers()[0].parts[0]
    assert part == FullAttention(8, 8)


def test_a_grouped_type_needs_its_kv_heads() -> None:
    config = {key: value for key, value in PLAIN.items() if key != "num_key_value_heads"}
    error = refused({"model_type": "bailing_moe", **config})
    assert error.code == "missing-key"
    assert "num_key_value_heads" in error.message


def test_custom_type_with_a_window_that_it_does_not_have() -> None:
    error = refused({"model_type": "internlm2", **PLAIN, "sliding_window": 512})
    assert error.code == "unknown-layer-type"
    assert "sliding_window" in error.message


@pytest.mark.parametrize(("flag", "kv"), [(True, 2), (False, 32)])
def test_chatglm_reads_its_flag(flag: bool, kv: int) -> None:
    config = {"model_type": "chatglm", "multi_query_attention": flag, "multi_query_group_num": 2}
    model = read(config)
    assert model.num_layers == 28
    assert model.layers()[0].parts[0] == FullAttention(kv, 128)


def test_falcon_in_three_spellings() -> None:
    old = {"model_type": "RefinedWeb", "n_layer": 60, "n_head": 128, "n_head_kv": 8, "hidden_size": 8192}
    assert read(old).layers()[0].parts[0] == FullAttention(8, 64)
    first = {
        "model_type": "RefinedWebModel",
        "n_layer": 32,
        "n_head": 71,
        "hidden_size": 4544,
        "multi_query": True,
    }
    assert read(first).layers()[0].parts[0] == FullAttention(1, 64)
    mixed = read({**old, "model_type": "falcon", "new_decoder_architecture": True})
    assert mixed.num_layers == 60
    assert kvplan.size(mixed, engine="generic", tokens=1).per_gpu.kv_bytes == 60 * 8 * 128 * 2
    assert "n_head_kv as num_kv_heads" in mixed.warnings[0]


def test_nas_blocks() -> None:
    blocks = [
        {"attention": {"n_heads_in_group": 4}},
        {"attention": {"no_op": True, "n_heads_in_group": None}},
        {"attention": {"replace_with_linear": True}},
        {"attention": {"n_heads_in_group": 2, "window_length": 128, "num_sink_tokens": 4}},
    ]
    model = read({"model_type": "nemotron-nas", **PLAIN, "block_configs": blocks})
    parts = [layer.parts[0] for layer in model.layers()]
    assert parts == [FullAttention(2, 8), NoCache(), NoCache(), SlidingWindow(4, 8, 128, sink_tokens=4)]


def test_layers_with_heads_of_their_own() -> None:
    openelm = {
        "model_type": "openelm",
        "num_transformer_layers": 3,
        "head_dim": 64,
        "num_kv_heads": [3, 4, 5],
    }
    assert [layer.parts[0] for layer in read(openelm).layers()] == [FullAttention(kv, 64) for kv in (3, 4, 5)]
    deci = {"model_type": "deci", **PLAIN, "num_key_value_heads_per_layer": [4, 2, 2, 1]}
    assert [layer.parts[0] for layer in read(deci).layers()] == [FullAttention(kv, 8) for kv in (4, 2, 2, 1)]
    assert "3 entries for 4 layers" in refused({**deci, "num_key_value_heads_per_layer": [4, 2, 2]}).message


@pytest.mark.parametrize("model_type", ["hunyuan", "hunyuan_v1_moe", "hunyuan_v1_dense"])
def test_hunyuan_shares_every_other_layer(model_type: str) -> None:
    shared = read({"model_type": model_type, **PLAIN, "head_dim": 8, "use_cla": True, "cla_share_factor": 2})
    assert [type(layer.parts[0]) for layer in shared.layers()] == [FullAttention, SharedKv] * 2
    alone = read({"model_type": model_type, **PLAIN, "head_dim": 8, "use_cla": False, "cla_share_factor": 2})
    assert [type(layer.parts[0]) for layer in alone.layers()] == [FullAttention] * 4


def test_attention_sinks() -> None:
    """StreamingLLM: four first tokens and 1,020 newest ones are kept, so the cache stops growing at 1,024."""
    config = {"model_type": "llama", **PLAIN, "attention_sink_size": 4, "attention_sink_window_size": 1020}
    sizes = [
        kvplan.size(config, engine="generic", tokens=tokens).per_gpu.kv_bytes for tokens in (1023, 1024, 9999)
    ]
    assert sizes[0] < sizes[1] == sizes[2] == 1024 * 4 * 2 * 16 * 2


# ---- unknown types


def test_unknown_plain_decoder_is_read_with_a_warning() -> None:
    model = read({"model_type": "brand-new", **PLAIN, "num_local_experts": 8, "shared_expert_size": 64})
    assert model.layers()[0].parts[0] == FullAttention(2, 8)
    assert "brand-new" in model.warnings[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sliding_window", 4096),
        ("layer_types", ["retention_attention"] * 4),
        ("kv_lora_rank", 512),
        ("mamba_d_state", 16),
        ("linear_attn_config", {"kda_layers": [1]}),
        ("block_configs", [{}]),
        ("cla_share_factor", 2),
        ("index_topk", 2048),
        ("compress_ratios", [4]),
        ("conv_kernel", 4),
        ("hybrid_layer_pattern", [0, 1, 0, 1]),
        ("some_new_list", [1, 0, 1, 0]),
        ("attention_sink_count", 4),
        ("n_head", 16),
        ("num_kv_heads", 4),
    ],
)
def test_unknown_type_with_a_telltale_key_is_refused(key: str, value: object) -> None:
    error = refused({"model_type": "brand-new", **PLAIN, key: value})
    assert error.code == "unknown-model-type"
    assert key in error.message


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_key_value_heads"])
def test_unknown_type_without_a_key_is_refused(key: str) -> None:
    config = {name: value for name, value in PLAIN.items() if name != key}
    assert key in refused({"model_type": "brand-new", **config}).message


@pytest.mark.parametrize("model_type", ["llada", "Dream", "retnet"])
def test_types_that_look_plain_and_are_not(model_type: str) -> None:
    assert refused({"model_type": model_type, **PLAIN}).code == "unknown-model-type"


REAL_KEYS: dict[str, dict[str, Any]] = {
    "qwen": {
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "hidden_size": 4096,
        "kv_channels": 128,
        "seq_length": 8192,
        "use_dynamic_ntk": True,
        "use_logn_attn": True,
        "rotary_pct": 1.0,
    },
    "exaone": {
        "num_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "head_dim": 128,
        "activation_function": "silu",
        "layer_norm_epsilon": 1e-5,
    },
    "arctic": {
        "num_hidden_layers": 35,
        "num_attention_heads": 56,
        "num_key_value_heads": 8,
        "hidden_size": 7168,
        "enc_index": list(range(35)),
        "moe_layer_frequency": 2,
        "parallel_attn_mlp_res": True,
        "sliding_window": None,
    },
    "grok-1": {
        "num_hidden_layers": 64,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "hidden_size": 6144,
        "max_position_embeddings": 8192,
        "sliding_window_size": -1,
        "num_experts": 8,
    },
    "molmo": {
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "hidden_size": 3584,
        "attention_layer_norm": True,
        "layer_norm_type": "rms",
        "embedding_size": 152064,
    },
    "bailing_moe": {
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "hidden_size": 2048,
        "max_window_layers": 20,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "first_k_dense_replace": 1,
    },
    "minicpmv": {
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "hidden_size": 3584,
        "max_window_layers": 28,
        "sliding_window": 131072,
        "use_sliding_window": False,
        "query_num": 64,
        "vision_config": {"num_hidden_layers": 27},
        "slice_mode": True,
    },
    "telechat": {
        "n_layer": 30,
        "n_head": 32,
        "hidden_size": 4096,
        "apply_residual_connection_post_layernorm": False,
    },
    "step3": {
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "num_attention_groups": 1,
        "head_dim": 256,
        "hidden_size": 7168,
        "share_q_dim": 2048,
        "max_seq_len": 65536,
    },
    "phi3_v": {
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "hidden_size": 3072,
        "sliding_window": 262144,
        "img_processor": {"name": "clip"},
    },
}
PER_TOKEN = {
    "qwen": 32 * 32 * 256,
    "exaone": 32 * 8 * 256,
    "arctic": 35 * 8 * 256,
    "grok-1": 64 * 8 * 256,
    "molmo": 28 * 4 * 256,
    "bailing_moe": 28 * 4 * 256,
    "minicpmv": 28 * 4 * 256,
    "telechat": 30 * 32 * 256,
    "step3": 61 * 1 * 512,
    "phi3_v": 32 * 32 * 192,
}


@pytest.mark.parametrize("model_type", REAL_KEYS)
def test_released_custom_models(model_type: str) -> None:
    result = kvplan.size({"model_type": model_type, **REAL_KEYS[model_type]}, engine="generic", tokens=9)
    assert result.per_gpu.bytes_per_token == PER_TOKEN[model_type] * 2


def test_switched_off_keys_say_nothing() -> None:
    config = {
        "model_type": "brand-new",
        **PLAIN,
        "sliding_window": 4096,
        "use_sliding_window": False,
        "ssm_cfg": {},
    }
    assert families(config) == ["full_attention"] * 4


def test_did_you_mean() -> None:
    assert refused({"model_type": "lama", "sliding_window": 1}).help[0] == "did you mean 'llama'?"
