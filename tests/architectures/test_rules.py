"""The rules of decoder-only types: patterns, gates, sharing, and what is refused by name of the key."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kvplan
from kvplan.architectures.config.class_names import class_facts
from kvplan.architectures.config.read import read_config
from kvplan.architectures.lineages import lineages
from kvplan.errors import KvplanError
from kvplan.model import Layer, Model


def read(model_type: str, **keys: Any) -> Model:
    return read_config({"model_type": model_type, **keys}, id="test", source="dict")


def letters(model: Model) -> str:
    """F full, S window, C chunk, M state, L latent, I latent and indexer, 0 nothing."""
    names = {
        "full_attention": "F",
        "sliding_window": "S",
        "chunked_attention": "C",
        "mla": "L",
        "mla+sparse_indexer": "I",
        "full_attention+sparse_indexer": "G",
        "no_cache": "0",
        "shared_kv": "0",
    }
    return "".join(names.get(layer.family, "M") for layer in model.layers())


def refused(model_type: str, **keys: Any) -> str:
    with pytest.raises(KvplanError) as caught:
        read(model_type, **keys)
    assert caught.value.exit_code == 2
    return caught.value.message


@pytest.mark.parametrize(
    ("model_type", "keys", "pattern"),
    [
        ("llama", {"num_hidden_layers": 3}, "FFF"),
        ("llama", {"num_hidden_layers": 2, "sliding_window": 8}, "FF"),
        ("mixtral", {"num_hidden_layers": 2, "sliding_window": 8}, "SS"),
        ("mistral", {"num_hidden_layers": 2}, "SS"),
        ("mistral", {"num_hidden_layers": 2, "sliding_window": None}, "FF"),
        ("gemma2", {"num_hidden_layers": 5}, "SFSFS"),
        ("gpt_oss", {"num_hidden_layers": 4}, "SFSF"),
        ("gemma3_text", {"num_hidden_layers": 8}, "SSSSSFSS"),
        ("gemma3_text", {"num_hidden_layers": 6, "sliding_window_pattern": 3}, "SSFSSF"),
        ("cohere2", {"num_hidden_layers": 5}, "SSSFS"),
        ("cohere2_moe", {"num_hidden_layers": 6, "first_k_dense_replace": 2}, "FFSSSF"),
        ("olmo3", {"num_hidden_layers": 5}, "SSSFS"),
        ("exaone4", {"num_hidden_layers": 5, "sliding_window": 8}, "SSSFS"),
        ("exaone4", {"num_hidden_layers": 2, "sliding_window": None}, "FF"),
        ("exaone4", {"num_hidden_layers": 5, "sliding_window": 8, "sliding_window_pattern": "LLG"}, "SSFSS"),
        ("cwm", {"num_hidden_layers": 5}, "FSSSF"),
        ("kolibri1", {"num_hidden_layers": 6}, "SSSSFS"),
        ("beam", {"num_hidden_layers": 8}, "SSSSSFSF"),
        ("flint", {"num_hidden_layers": 8}, "FFSSSFSF"),
        ("mimo_v2_flash", {"num_hidden_layers": 7}, "FSSSSFS"),
        ("modernbert-decoder", {"num_hidden_layers": 4}, "FSSF"),
        ("qwen2", {"num_hidden_layers": 4, "use_sliding_window": True, "max_window_layers": 1}, "FSSS"),
        ("qwen2", {"num_hidden_layers": 2, "sliding_window": 8}, "FF"),
        ("qwen2_moe", {"num_hidden_layers": 4, "use_sliding_window": True, "max_window_layers": 3}, "SFSF"),
        ("qwen3_moe", {"num_hidden_layers": 2, "use_sliding_window": True}, "SS"),
        ("smollm3", {"num_hidden_layers": 4}, "FFFF"),
        ("smollm3", {"num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 8}, "FFFS"),
        ("llama4_text", {"num_hidden_layers": 5}, "CCCFC"),
        ("llama4_text", {"num_hidden_layers": 2, "no_rope_layers": [0, 1]}, "FC"),
        ("gemma3n_text", {"num_hidden_layers": 10, "num_kv_shared_layers": 5}, "SSSSF00000"),
        ("gemma4_text", {"num_hidden_layers": 7}, "SSSSSFF"),
        ("deepseek_v3", {"num_hidden_layers": 2}, "LL"),
        ("longcat_flash", {"num_layers": 2}, "LLLL"),
        ("deepseek_v32", {"num_hidden_layers": 2}, "II"),
        ("glm_moe_dsa", {"num_hidden_layers": 4, "index_topk_pattern": "FSFS"}, "ILIL"),
        ("glm_moe_dsa", {"num_hidden_layers": 5, "index_topk_freq": 2, "index_skip_topk_offset": 1}, "ILILI"),
        ("hy_v4", {"num_hidden_layers": 6}, "IILLLI"),
        ("dots3_note_text", {"num_hidden_layers": 6}, "IILLLI"),
        ("kimi_linear", {"num_hidden_layers": 5}, "MMMML"),
        ("bailing_hybrid", {"num_hidden_layers": 3, "layer_group_size": 3}, "MML"),
        ("jamba", {"num_hidden_layers": 5, "attn_layer_period": 2, "attn_layer_offset": 1}, "MFMFM"),
        ("bamba", {"num_hidden_layers": 3, "attn_layer_indices": [2]}, "MMF"),
        ("nemotron_h", {"hybrid_override_pattern": "M-*E"}, "M0F0"),
        ("nemotron_h", {"layers_block_type": ["mamba", "attention", "moe"]}, "MF0"),
        ("granitemoehybrid", {"num_hidden_layers": 2, "layer_types": ["mamba", "attention"]}, "MF"),
        ("recurrent_gemma", {"num_hidden_layers": 4}, "MMSM"),
        ("qwen3_next", {"num_hidden_layers": 4}, "MMMF"),
        ("olmo_hybrid", {"num_hidden_layers": 3}, "MMF"),
        ("olmo_hybrid", {"num_hidden_layers": 5}, "MMMFM"),
        ("minimax", {"num_hidden_layers": 3}, "FMF"),
        ("lfm2", {"num_hidden_layers": 3, "full_attn_idxs": [1]}, "MFM"),
        ("lfm3", {"num_hidden_layers": 5}, "MMFMS"),
        ("minimax_m3_vl_text", {"num_hidden_layers": 2,
                                "sparse_attention_config": {"sparse_attention_freq": [0, 1]}}, "FG"),
        ("mistral_large4_text", {"num_hidden_layers": 3, "kv_source_layers": [0, 0, 2],
                                 "indexer_types": ["full", "shared", "full"]}, "I0I"),
    ],
)  # fmt: skip
def test_patterns(model_type: str, keys: dict[str, Any], pattern: str) -> None:
    assert letters(read(model_type, **keys)) == pattern


def test_a_given_list_wins_over_the_pattern() -> None:
    kinds = ["full_attention", "sliding_attention", "full_attention"]
    assert letters(read("gemma2", num_hidden_layers=3, layer_types=kinds)) == "FSF"


@pytest.mark.parametrize(
    ("model_type", "keys", "named"),
    [
        ("llama", {"num_hidden_layers": 2, "layer_types": ["full_attention", "brand_new"]}, "layer_types"),
        ("llama", {"num_hidden_layers": 2, "layer_types": ["full_attention"]}, "layer_types"),
        ("llama", {"num_hidden_layers": 1, "layer_types": [3]}, "layer_types"),
        ("olmo3", {"num_hidden_layers": 4, "sliding_window": None}, "sliding_window"),
        ("phi3", {"num_hidden_layers": 2, "sliding_window": 0}, "sliding_window"),
        ("qwen2", {"num_hidden_layers": 1, "layer_types": ["sliding_attention"]}, "use_sliding_window"),
        ("llama4_text", {"num_hidden_layers": 4, "no_rope_layers": [1]}, "no_rope_layers"),
        ("llama4_text", {"num_hidden_layers": 4, "attention_chunk_size": None}, "attention_chunk_size"),
        ("exaone4", {"sliding_window": 8, "sliding_window_pattern": "LLX"}, "sliding_window_pattern"),
        ("nemotron_h", {"hybrid_override_pattern": "M?"}, "hybrid_override_pattern"),
        ("recurrent_gemma", {"block_types": ["recurrent", "mystery"]}, "block_types"),
        ("kimi_linear", {"num_hidden_layers": 3, "linear_attn_config": {
            "full_attn_layers": [1], "kda_layers": [2]}}, "linear_attn_config"),
        ("glm_moe_dsa", {"num_hidden_layers": 2, "indexer_types": ["full", "half"]}, "indexer_types"),
        ("glm_moe_dsa", {"num_hidden_layers": 2, "indexer_types": ["full"]}, "indexer_types"),
        ("deepseek_v4", {"num_hidden_layers": 2, "compress_ratios": [0, 7]}, "compress_ratios"),
        ("deepseek_v4", {"num_hidden_layers": 2, "compress_ratios": [0]}, "compress_ratios"),
        ("zamba2", {"num_hidden_layers": 6}, "layers_block_type"),
        ("lfm2_moe", {}, "layer_types"),
        ("mamba2", {"num_heads": 3}, "num_heads"),
        ("gemma4_text", {"num_hidden_layers": 6, "num_kv_shared_layers": 5}, "num_kv_shared_layers"),
        ("qwen4_exp_text", {"indexer_head_dim": 64, "ple_layer_ids": [4]}, "ple_layer_ids"),
        ("reformer", {}, "model_type"),
        ("llama", {"num_hidden_layers": 2, "per_layer_config": {"9": {"head_dim": 8}}}, "per_layer_config"),
        ("llama", {"num_hidden_layers": 2, "per_layer_config": {"0": {"skip": ["mlp"]}}}, "per_layer_config"),
    ],
)  # fmt: skip
def test_refusals_name_the_key(model_type: str, keys: dict[str, Any], named: str) -> None:
    assert named in refused(model_type, **keys)


def parts(model: Model) -> list[Any]:
    return [part for layer in model.layers() for part in layer.parts]


def test_single_layers_may_differ() -> None:
    model = read("llama", num_hidden_layers=2, head_dim=32, per_layer_config={"1": {"head_dim": 64}})
    assert [part.head_dim for part in parts(model)] == [32, 64]


def test_gemma4_full_layers_are_wider() -> None:
    model = read("gemma4_text", num_hidden_layers=6, head_dim=256, num_global_key_value_heads=2)
    assert [part.head_dim for part in parts(model)] == [256] * 5 + [512]
    assert parts(model)[5].num_kv_heads == 4
    equal = read("gemma4_text", num_hidden_layers=6, num_global_key_value_heads=2, attention_k_eq_v=True)
    assert parts(equal)[5].num_kv_heads == 2


def test_windows_of_attention_that_looks_both_ways_are_halved() -> None:
    model = read("gemma3_text", num_hidden_layers=1, sliding_window=100, use_bidirectional_attention=True)
    assert parts(model)[0].sliding_window == 51


def test_mimo_counts_the_window_in_two_ways() -> None:
    model = read("mimo_v2_flash", num_hidden_layers=2, sliding_window=128, sliding_window_size=128)
    full, windowed = parts(model)
    assert (full.num_kv_heads, windowed.num_kv_heads) == (4, 8)
    assert (windowed.sliding_window, windowed.library_window) == (128, 129)


@pytest.mark.parametrize(
    ("keys", "kept", "repeated"),
    [
        ({"multi_query": True, "num_kv_heads": 71}, 1, None),
        ({"multi_query": False}, 71, None),
        (
            {
                "new_decoder_architecture": True,
                "num_kv_heads": 8,
                "num_attention_heads": 128,
                "hidden_size": 8192,
            },
            8,
            128,
        ),
    ],
)
def test_falcon_goes_both_ways(keys: dict[str, Any], kept: int, repeated: int | None) -> None:
    part = parts(read("falcon", **keys))[0]
    assert (part.num_kv_heads, part.broadcast_heads) == (kept, repeated)


@pytest.mark.parametrize("model_type", ["llama", "deepseek_v3", "falcon", "gpt2"])
def test_a_stray_window_is_obeyed_by_the_librarys_cache_alone(model_type: str) -> None:
    """The class has no window and never masks by it, but DynamicCache reads the key of any config."""
    plain = read(model_type, num_hidden_layers=2)
    stray = read(model_type, num_hidden_layers=2, sliding_window=11)

    def kept(model: Model, engine: str, tokens: int) -> int:
        return kvplan.size(model, engine=engine, tokens=tokens, dtype="bfloat16").per_gpu.kv_bytes

    assert kept(stray, "generic", 100) == kept(plain, "generic", 100)
    assert kept(stray, "transformers", 100) == kept(plain, "transformers", 10)


def test_hunyuan_shares_between_layers_but_the_library_does_not() -> None:
    model = read("hunyuan_v1_dense", num_hidden_layers=4, use_cla=True, cla_share_factor=2, head_dim=128)
    assert letters(model) == "F0F0"
    kept = [
        kvplan.size(model, engine=name, tokens=1, dtype="bfloat16") for name in ("generic", "transformers")
    ]
    assert kept[1].per_gpu.kv_bytes == 2 * kept[0].per_gpu.kv_bytes


def test_each_pass_of_a_repeated_stack_counts() -> None:
    assert read("hrm_text").num_layers == 128
    assert read("hrm_text", num_hidden_layers=12, num_layers_per_stack=2).num_layers == 12


def test_an_alias_counts_as_the_key() -> None:
    assert read("gpt2", num_hidden_layers=4, n_layer=3).num_layers == 4
    assert parts(read("gpt2", n_embd=64, n_head=4))[0].head_dim == 16


def test_numbers_know_the_key_that_they_came_from() -> None:
    keys = read("llama", num_key_value_heads=8, num_hidden_layers=1).provenance.keys["full_attention"]
    assert keys["num_kv_heads"] == "num_key_value_heads"
    assert "hidden_size" in keys["head_dim"]


def test_every_rule_answers_or_refuses_its_class_default() -> None:
    """``{"model_type": X}`` alone never fails otherwise than with an error that is meant."""
    for model_type in (name for name, known in lineages().items() if known.layers):
        if class_facts(model_type) is None:
            continue
        try:
            model = read(model_type)
        except KvplanError:
            continue
        assert all(isinstance(layer, Layer) for layer in model.layers())
        json.dumps({key: dict(value) for key, value in model.provenance.keys.items()})


def test_types_without_a_cache_have_a_reason() -> None:
    found = {name: known for name, known in lineages().items() if known.no_cache}
    assert set(found) == {"openai-gpt", "xlm"}
    assert all(known.layers for known in found.values())
