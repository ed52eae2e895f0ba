"""Inventories from configs: published parameter counts, quantised checkpoints, refusals, plain data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvplan.architectures.inventory import inventory_of, known_decoders
from kvplan.dtypes import BFLOAT16
from kvplan.errors import KvplanError
from kvplan.weights.ranks import ALONE, Parallel, block_bytes, bytes_by_stage
from tests.weights.checkpoints import TINY_LLAMA
from tests.weights.inventory_text import dump_inventory, load_inventory


def _llama(
    hidden: int, width: int, layers: int, heads: int, kv: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocab,
        **more,
    }


PUBLISHED = {
    "Llama-3.1-8B": (_llama(4096, 14336, 32, 32, 8, 128256), 8_030_261_248),
    "Llama-3.1-405B": (_llama(16384, 53248, 126, 128, 8, 128256), 405_853_388_800),
    "Llama-3.2-1B": (
        _llama(2048, 8192, 16, 32, 8, 128256, head_dim=64, tie_word_embeddings=True),
        1_235_814_400,
    ),
    "Mistral-7B-v0.1": ({**_llama(4096, 14336, 32, 32, 8, 32000), "model_type": "mistral"}, 7_241_732_096),
    "Mixtral-8x7B": (
        {**_llama(4096, 14336, 32, 32, 8, 32000, num_local_experts=8), "model_type": "mixtral"},
        46_702_792_704,
    ),
    "Qwen2.5-7B": ({**_llama(3584, 18944, 28, 28, 4, 152064), "model_type": "qwen2"}, 7_615_616_512),
    "Qwen3-32B": (
        {**_llama(5120, 25600, 64, 64, 8, 151936, head_dim=128), "model_type": "qwen3"},
        32_762_123_264,
    ),
    "gpt2": (
        {
            "model_type": "gpt2",
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "vocab_size": 50257,
        },
        124_439_808,
    ),
    "bloom": (
        {"model_type": "bloom", "hidden_size": 14336, "n_layer": 70, "n_head": 112, "vocab_size": 250880},
        176_247_271_424,
    ),
    "phi-2": (
        {"model_type": "phi-msft", "n_embd": 2560, "n_layer": 32, "n_head": 32, "vocab_size": 51200},
        2_779_683_840,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameter_counts(name: str) -> None:
    config, count = PUBLISHED[name]
    assert inventory_of(config).parameters == count


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_ranks_together_hold_at_least_the_model(tp: int) -> None:
    inventory = inventory_of(TINY_LLAMA)
    rank = bytes_by_stage(inventory, Parallel(tp), BFLOAT16)[0]
    assert rank * tp >= inventory.parameters * 2
    assert rank <= bytes_by_stage(inventory, ALONE, BFLOAT16)[0]


def _quantised(config: dict[str, Any], **more: Any) -> int:
    return bytes_by_stage(inventory_of({**TINY_LLAMA, **more, "quantization_config": config}))[0]


PLAIN_ENDS = 2 * (2 * 1024 * 64 + 64 + 4 * 2 * 64)
MATRICES = 4 * (2 * 64 * 64 + 2 * 16 * 64 + 3 * 128 * 64)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "fp8"}, MATRICES + 4 * 7 * 8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, MATRICES + 4 * 7 * 4),
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, MATRICES // 2 + MATRICES // 32 * 5 // 2),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 32},
            MATRICES // 2 + MATRICES // 32 * 5 // 2 + 4 * 4 * (6 * 64 + 128),
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]},
            MATRICES * 9 // 16 + 4 * 7 * 8,
        ),
        (
            {"quant_method": "auto-round", "bits": 4, "group_size": 32},
            MATRICES // 2 + MATRICES // 32 * 5 // 2,
        ),
        (
            {"quant_method": "auto-round", "bits": 8, "group_size": [128, 128], "data_type": "fp"},
            MATRICES + 4 * 7 * 4,
        ),
        (
            {"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp4"},
            MATRICES * 17 // 32,
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, MATRICES // 2 + MATRICES // 64 * 4),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "ignore": ["lm_head"],
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                    }
                },
            },
            MATRICES + 4 * 4 * (64 + 16 + 16 + 64 + 128 + 128 + 64),
        ),
    ],
)
def test_quantised_configs(config: dict[str, Any], expected: int) -> None:
    assert _quantised(config) == expected + PLAIN_ENDS


def test_spared_modules_stay_as_trained() -> None:
    """Every attention matrix of layer 0, however the list spells it."""
    attention = 2 * 64 * 64 + 2 * 16 * 64
    base = _quantised({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]})
    less = attention * 2 - attention * 9 // 16 - 4 * 8
    for spared in ("model.layers.0.self_attn*", "model.language_model.layers.0.self_attn*"):
        config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", spared]}
        assert _quantised(config) == base + less
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group"}}
    compressed = {
        "quant_method": "compressed-tensors",
        "config_groups": {"a": group},
        "ignore": ["lm_head", r"re:.*layers\.0\.self_attn\..*"],
    }
    assert _quantised(compressed) == base + less


@pytest.mark.parametrize(
    "named",
    [
        "model.layers.0.mlp.down_proj",
        "model.language_model.layers.0.mlp.down_proj",
        "layers.0.mlp.down_proj",
        r".*layers\.0\.mlp\.down_proj",
    ],
)
def test_modules_that_autoround_names(named: str) -> None:
    """Whole paths, ends of paths and expressions (inc/config_parser.py); blocks that are named are all."""
    plain: dict[str, Any] = {"quant_method": "auto-round", "bits": 4, "group_size": 32}
    base, matrix = _quantised(plain), 128 * 64
    spared = {**plain, "extra_config": {named: {"bits": 16, "data_type": "float"}}}
    assert _quantised(spared) == base + 2 * matrix - matrix * 37 // 64
    wider = {**plain, "extra_config": {named: {"bits": 8}}}
    assert _quantised(wider) == base + matrix // 2 + matrix // 32 // 2
    first = {**plain, "block_name_to_quantize": "model.layers.0."}
    whole = _quantised({**plain, "bits": 16})
    assert base < _quantised(first) < whole
    head = {**first, "extra_config": {"lm_head": {"bits": 4}}}
    untied = {"tie_word_embeddings": False}
    assert _quantised(head, **untied) < _quantised(first, **untied)


def test_modelopt_file_counts_only_where_it_names_its_producer() -> None:
    file: dict[str, Any] = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    plain = bytes_by_stage(inventory_of(TINY_LLAMA))
    named = {**file, "producer": {"name": "modelopt"}}
    assert bytes_by_stage(inventory_of(TINY_LLAMA, hf_quant_config=named)) < plain
    cache = {"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}
    assert bytes_by_stage(inventory_of(TINY_LLAMA, hf_quant_config=cache)) == plain
    with pytest.raises(KvplanError) as caught:  # quantised by nobody knows what: not sized as if it were not
        inventory_of(TINY_LLAMA, hf_quant_config=file)
    assert caught.value.code == "unknown-quantization"


@pytest.mark.parametrize(
    "config",
    [
        {"quant_method": "aqlm"},
        {"quant_method": "modelopt", "quant_algo": "NVFP3"},
        {"quant_method": "compressed-tensors", "config_groups": {}},
        {"quant_method": "bitsandbytes"},
    ],
)
def test_unknown_quantisation_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(KvplanError) as caught:
        _quantised(config)
    assert caught.value.code == "unknown-quantization"
    assert any("--weights" in line for line in caught.value.help)


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:(", "x" * 400, 7])
def test_hostile_lists_are_refused(pattern: object) -> None:
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}
    with pytest.raises(KvplanError) as caught:
        _quantised({"quant_method": "compressed-tensors", "config_groups": {"a": group}, "ignore": [pattern]})
    assert caught.value.code == "bad-config"


def test_draft_layers_are_beside_the_model() -> None:
    config = {
        **_llama(64, 128, 4, 8, 2, 1024, head_dim=8),
        "model_type": "glm4_moe",
        "n_routed_experts": 4,
        "moe_intermediate_size": 32,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "num_experts_per_tok": 2,
    }
    with_draft = inventory_of({**config, "num_nextn_predict_layers": 1})
    without = inventory_of({**config, "num_nextn_predict_layers": 0})
    assert bytes_by_stage(with_draft) == bytes_by_stage(without)
    assert not without.draft
    joined = 2 * (3 * 64 + 2 * 64 * 64)
    assert block_bytes(with_draft.draft[0].tensors) == block_bytes(with_draft.layers[-1].tensors) + joined


def test_a_wrapper_with_an_unknown_tower_is_refused() -> None:
    config = {"model_type": "janus", "text_config": TINY_LLAMA, "vision_config": {"hidden_size": 8}}
    with pytest.raises(KvplanError, match="what stands beside its text decoder is not known"):
        inventory_of(config)
    with pytest.raises(KvplanError, match="img_processor adds is not known"):
        inventory_of({**TINY_LLAMA, "img_processor": {"name": "clip"}})


def test_an_inventory_survives_as_plain_data() -> None:
    config = {**TINY_LLAMA, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    inventory = inventory_of(config)
    data = dump_inventory(inventory)
    again = load_inventory(json.loads(json.dumps(data)))
    assert dump_inventory(again) == data
    for parallel in (ALONE, Parallel(2), Parallel(1, 2)):
        assert bytes_by_stage(again, parallel) == bytes_by_stage(inventory, parallel)
    assert again.parameters == inventory.parameters


@pytest.mark.parametrize(
    "change",
    [
        {"layers": "9999 a"},
        {"layers": "4 zz"},
        {"ends": [["first", "a", "linear 8 x y"]]},
        {"ends": [["nowhere", "a", "linear 8"]]},
        {"ends": [["first", "a", "linear 8", 10**9]]},
        {"kinds": 7},
        {"formats": {"a": ["x", -1, [1, 1], 0, 0, 0, 0, [1, 1]]}},
    ],
)
def test_bad_plain_data_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(KvplanError) as caught:
        load_inventory({**dump_inventory(inventory_of(TINY_LLAMA)), **change})
    assert caught.value.code == "bad-inventory"


def test_the_table_of_known_types() -> None:
    assert {"llama", "deepseek_v3", "qwen3_next", "nemotron_h", "whisper"} <= set(known_decoders())


@pytest.mark.parametrize(
    "odd", [{"block_name_to_quantize": 5}, {"data_type": 7}, {"bits": "x"}, {"group_size": [1, 2]}]
)
def test_autoround_that_is_not_understood_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(KvplanError):
        _quantised({"quant_method": "auto-round", "bits": 4, **odd})


@pytest.mark.parametrize(("ordered", "kept"), [(True, 4 * 4 * (6 * 64 + 128)), (False, 0), (None, 0)])
def test_indices_of_groups_are_kept_where_a_kernel_needs_them(ordered: bool | None, kept: int) -> None:
    """GPTQ stores an index an input; Marlin takes those of desc_act alone."""
    config = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": ordered}
    inventory = inventory_of({**TINY_LLAMA, "quantization_config": config})
    loaded = bytes_by_stage(inventory, Parallel(group_indices=False))[0]
    assert loaded == PLAIN_ENDS + MATRICES // 2 + MATRICES // 32 * 5 // 2 + kept
    assert bytes_by_stage(inventory)[0] == loaded - kept + 4 * 4 * (6 * 64 + 128)
