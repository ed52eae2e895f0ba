"""Which models' tensors are held against the library's, which sizes change, and where they may differ."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

from kvplan.architectures.inventory import inventory_of, known_decoders
from kvplan.architectures.lineages import lineage_of
from tests.conformance.causal_cases import CAUSAL, SETTINGS, set_of
from tests.conformance.shrink import small_config

LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h|blocks|block)\.(\d{1,5})\.")
BIAS_BUFFER = re.compile(r"correction_bias|expert_bias|balancing_biases")
"""Buffers that a checkpoint stores and an engine loads as it does parameters."""
NOT_CHANGED = re.compile(
    r"use_prompt|^_|_token_id|_token_index|^is_|use_cache|^return_|^output_|add_cross_attention"
)
MAY_BE_TRUE = re.compile(r"bias|norm|tie|use_")
Sums = Counter[int | str]

UNBUILT = {
    "inkling_mm_model": "its tower has 64 times the channels that vLLM's class rounds to: the text is built",
    "gemma4": "its default has no vision part: the text model is built",
    "llama4": "the wrapper's small config cannot be made: the text model is built",
    "qwen3_5": "as llama4",
    "qwen3_5_moe": "as llama4",
}
PUBLISHED_ONLY = {
    "deepseek_v4": "the rule reads compress_ratios, as published; the class saves layer_types",
    "kimi_linear": "the rule reads linear_attn_config, as published",
    "mimo_v2_flash": "the rule reads hybrid_layer_pattern and moe_layer_freq, as published",
    "minimax_m3_vl_text": "the rule reads sparse_attention_config, as published",
}
WHOLE_MODELS = {
    "whisper": "vLLM stores a bias of the key too, in the fused projection",
    "mllama": "the library's head is tied to its text model's table",
    "gemma3": "the wrapper's features: the text model is held",
}
WITHOUT_BIAS = "vLLM's class has no bias there, whatever the config says"
SAID_AGAIN = "another key of the same config says it again"
TIED = "the engine ties the head or does not, whatever the config says"
# model type → changed keys that an engine takes another way than the library, and why.
DIFFERS: dict[str, dict[str, str]] = {
    "bailing_hybrid": {"n_shared_experts": "two spellings"},
    "bloom": {"tie_word_embeddings": TIED},
    "cohere": {"tie_word_embeddings": TIED, "attention_bias": WITHOUT_BIAS},
    "cohere2": {"tie_word_embeddings": TIED, "attention_bias": WITHOUT_BIAS},
    "dbrx": {"ffn_config.hidden_size": "the class reads it twice"},
    "deepseek_v2": {"attention_bias": WITHOUT_BIAS, "mlp_bias": WITHOUT_BIAS},
    "deepseek_v3": {"attention_bias": WITHOUT_BIAS},
    "deepseek_v32": {
        "attention_bias": WITHOUT_BIAS, "mlp_bias": WITHOUT_BIAS, "first_k_dense_replace": SAID_AGAIN,
    },
    "dory": {"attention_bias": WITHOUT_BIAS, "mlp_bias": WITHOUT_BIAS, "tie_word_embeddings": TIED},
    "falcon_h1": {"mamba_proj_bias": "of one projection in the library", "projectors_bias": WITHOUT_BIAS},
    "gemma": {"attention_bias": WITHOUT_BIAS},
    "gemma4_text": {"attention_k_eq_v": "vLLM keeps the room of the values"},
    "gemma4_unified_text": {"attention_k_eq_v": "vLLM keeps the room of the values"},
    "glm4_moe_lite": {"attention_bias": WITHOUT_BIAS},
    "glm_moe_dsa": {"attention_bias": WITHOUT_BIAS, "first_k_dense_replace": SAID_AGAIN},
    "gpt2": {"tie_word_embeddings": TIED},
    "gpt_oss": {"attention_bias": "vLLM's class always has it"},
    "laguna": {"gating": "a gate for each head is a boolean in the published files only"},
    "lfm2": {"tie_word_embeddings": TIED},
    "llama4_text": {"attention_bias": WITHOUT_BIAS, "interleave_moe_layer_step": "moe_layers says it again"},
    "longcat_flash": {
        "zero_expert_num": "the library allocates gate and up of experts without weights",
        "qk_head_dim": SAID_AGAIN, "qk_nope_head_dim": SAID_AGAIN, "qk_rope_head_dim": SAID_AGAIN,
    },
    "mpt": {"tie_word_embeddings": TIED, "expansion_ratio": "the class computes with 4"},
    "nemotron_h": {
        "tie_word_embeddings": "the class does not tie",
        "mlp_bias": "the shared expert's",
        "n_shared_experts": "the class has one",
    },
    "olmoe": {"attention_bias": WITHOUT_BIAS},
    "opt": {"layer_norm_elementwise_affine": "vLLM's norms have weights"},
    "phi": {"qk_layernorm": "no published file has it"},
    "qwen3": {"attention_bias": WITHOUT_BIAS},
    "qwen3_5_moe_text": {"attention_bias": WITHOUT_BIAS},
    "qwen3_5_text": {"attention_bias": WITHOUT_BIAS},
    "qwen3_moe": {"attention_bias": WITHOUT_BIAS},
    "qwen3_next": {"attention_bias": WITHOUT_BIAS},
    "sarvam_mla": {"attention_bias": WITHOUT_BIAS},
    "stablelm": {
        "qk_layernorm": "vLLM's class has none", "use_parallel_residual": "vLLM's class has two norms",
    },
    "xlstm": {
        "hidden_size": "embedding_dim says it again", "embedding_dim": "hidden_size says it again",
        "add_out_norm": "the class keeps the norm",
    },
    "zamba": {"tie_word_embeddings": "the class unties the shared block with it"},
    "zamba2": {
        "use_conv_bias": "the class shares no more", "tie_word_embeddings": "it unties the block",
        "num_attention_heads": SAID_AGAIN, "num_key_value_heads": SAID_AGAIN,
    },
}  # fmt: skip


SUM_ONLY = {
    "dory": "the library's layers are pairs of the file's blocks",
    "hrm_text": "two stacks whose layers have the same numbers",
    "zamba": "the library counts the shared block in the first layer that uses it",
    "zamba2": "as zamba",
}
NO_CORRECTION = {
    "sarvam_moe": "vLLM loads it where moe_router_enable_expert_bias says so, which the class drops",
    "deepseek_v3": "vLLM loads the correction bias where topk_method says noaux_tc, a key the class drops",
    "deepseek_v32": "as deepseek_v3",
    "glm_moe_dsa": "as deepseek_v3",
    "dots1": "as deepseek_v3",
    "minimax_m2": "where use_routing_bias says so, which the class drops",
}
HELD_WITH = {**SETTINGS, "longcat_flash": {**SETTINGS["longcat_flash"], "zero_expert_num": 0}}


SEQ2SEQ = dict(MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
ENCODER_DECODERS = {
    name: SEQ2SEQ[name] for name in known_decoders() if lineage_of(name).whole and name in SEQ2SEQ
}
CLASSES = {**CAUSAL, **ENCODER_DECODERS, "mistral4": "Mistral4ForCausalLM"}


def weight_types() -> list[str]:
    """Every model of the library whose tensors kvplan knows."""
    left_out = {*UNBUILT, *PUBLISHED_ONLY, *WHOLE_MODELS}
    return sorted((set(CLASSES) & set(known_decoders())) - left_out)


def whole_sums() -> set[str]:
    """Types whose layers have no numbers of their own: encoder and decoder, shared blocks."""
    return {*SUM_ONLY, *ENCODER_DECODERS}


def built(class_name: str, config: Any) -> Any:
    """The class on the meta device; a copy of the config, which the class changes."""
    with torch.device("meta"):
        return getattr(transformers, class_name)._from_config(
            copy.deepcopy(config), attn_implementation="eager"
        )


def library_sums(model_type: str, model: Any) -> Sums:
    """Numbers by layer, and of everything else: parameters once, stored correction biases too."""
    sums: Sums = Counter()
    stored = [(name, value.numel()) for name, value in model.named_buffers() if BIAS_BUFFER.search(name)]
    if model_type in NO_CORRECTION:
        stored = []
    for name, count in [*((name, value.numel()) for name, value in model.named_parameters()), *stored]:
        found = LAYER.search(name)
        sums[int(found[1]) if found and model_type not in whole_sums() else "ends"] += count
    return +sums


def own_sums(raw: dict[str, Any]) -> Sums:
    """The same from the config."""
    inventory = inventory_of(raw)
    sums: Sums = Counter()
    for index, block in enumerate(inventory.layers):
        sums[index] = sum(tensor.elements for tensor in block.tensors)
    sums["ends"] = sum(entry.times * entry.tensor.elements for entry in inventory.ends)
    if raw["model_type"] in whole_sums():
        sums = Counter({"ends": sums.total()})
    return +sums


def spelled(model_type: str, config: Any) -> dict[str, Any]:
    return {**config.to_dict(), "model_type": model_type}


def variants(model_type: str) -> Iterator[tuple[str, Any]]:
    """The small config, and one for every size and switch of it that the class takes changed."""
    config = small_config(model_type, HELD_WITH.get(model_type, {}))
    yield "base", config
    for key, value in config.to_dict().items():
        if NOT_CHANGED.search(key) or key in DIFFERS.get(model_type, {}):
            continue
        changed: list[object] = []
        if isinstance(value, bool):
            changed = [not value]
        elif isinstance(value, int) and value > 0:
            changed = [value * 2, value + 1]
        elif value is None and MAY_BE_TRUE.search(key):
            changed = [True]
        for one in changed:
            known = {name: kept for name, kept in config.to_dict().items() if name != "model_type"}
            try:
                other = type(config)(**{**known, key: one})
                built(CLASSES[model_type], other)
            except Exception:
                continue
            yield f"{key}={one}", other
            break


ITT = dict(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
WRAPPERS = {
    **{
        name: ITT[name]
        for name in (
            "paligemma aya_vision cohere2_vision idefics3 smolvlm qwen2_vl glm4v glm46v glmga"
        ).split()
    },
    "fuyu": "FuyuForCausalLM",
    "qwen2_audio": "Qwen2AudioForConditionalGeneration",
}
"""Wrappers whose towers engines build as the library does."""
PART_DIFFERS = {
    "attention_bias": WITHOUT_BIAS,
    "tie_word_embeddings": "the wrapper's says it again",
    "head_dim": "vLLM's Pixtral has no width of its own",
}


def part_variants(model_type: str) -> Iterator[tuple[str, Any]]:
    """A wrapper's small config, and one for every size of its parts that the class takes doubled."""
    config = small_config(model_type, HELD_WITH.get(model_type, {}))
    yield "base", config
    for part in type(config).sub_configs:
        inner: Any = getattr(config, part, None)
        for key, value in inner.to_dict().items() if inner is not None else ():
            if NOT_CHANGED.search(key) or key in PART_DIFFERS or isinstance(value, bool):
                continue
            if not isinstance(value, int) or value < 1:
                continue
            other = copy.deepcopy(config)
            known = {name: kept for name, kept in inner.to_dict().items() if name != "model_type"}
            try:
                setattr(other, part, type(inner)(**{**known, key: value * 2}))
                built(WRAPPERS[model_type], other)
            except Exception:
                continue
            yield f"{part}.{key}", other


ALWAYS = set_of(
    """
    llama arcee glm4 ernie4_5 cwm helium afmoe ernie4_5_moe longcat_flash zaya jetmoe hy_v4 rwkv
    modernbert-decoder
    """
)
