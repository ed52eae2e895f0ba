"""Config values that one engine's rule needs and the layers do not carry, named for ``Model.facts``.

serving_model_len, serving_longest_model_len: vllm-project/vllm 0.32 vllm/config/model.py
(_get_and_verify_max_len) and vllm/transformers_utils/model_arch_config_convertor.py
(derive_max_model_len_and_key). serving_yarn_model_len: the same of releases before 0.30. mamba_chunk_size:
vllm/config/model.py (get_mamba_chunk_size). A fact that says nothing new is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.architectures.config.view import ConfigView
from kvplan.record import Json

LENGTH_KEYS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
    "max_target_positions", "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
# These leave max_position_embeddings already scaled.
SCALED = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})


# Config classes of vLLM's own whose defaults differ (vllm/transformers_utils/configs/kimi_linear.py).
OWN_LENGTHS = {"kimi_linear": 4096}
# The original length and the factor of classes that stretch where the file says nothing of it.
CLASS_YARN = {"gpt_oss": (4096, 32)}
SOFTCAPPED = frozenset({"gemma2"})
"""Types whose class caps attention logits unless the file says otherwise."""
_MODELOPT_WORDS = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}


def engine_facts(
    view: ConfigView,
    max_model_len: int | None,
    quantization: Json | None = None,
    scheme: str | None = None,
) -> dict[str, int | str | bool | None]:
    """Facts of the text part.

    max_model_len and scheme are the model's own, as the reader has them; quantization the object that
    counts: the config's, else ModelOpt's file beside it.
    """
    facts: dict[str, int | str | bool | None] = {}
    served = serving_kv_scheme(quantization)
    if served != scheme:
        facts["serving_kv_scheme"] = served
    default, longest = serving_lengths(view)
    if default != max_model_len:
        facts["serving_model_len"] = default
    if longest != (max_model_len or 0):
        facts["serving_longest_model_len"] = longest
    stretched = yarn_length(view)
    if stretched is not None and stretched != default:
        facts["serving_yarn_model_len"] = stretched
    chunk = view.get("mamba_chunk_size", "chunk_size")
    if isinstance(chunk, int) and not isinstance(chunk, bool) and 0 < chunk < 10**6:
        facts["mamba_chunk_size"] = chunk
    softcap = view.get("attn_logit_softcapping")
    if softcap or (view.model_type in SOFTCAPPED and not view.given("attn_logit_softcapping")):
        facts["attn_logit_softcapping"] = True
    if view.model_type == "mimo_v2_flash":
        facts.update(_mimo_window(view))
    if view.model_type == "inkling_text" and not view.given("local_layer_ids"):
        # vllm/models/inkling/configs.py knows windowed layers by their numbers only.
        facts["serving_full_kv_heads"] = int(view.integer("num_key_value_heads"))
        facts["serving_full_head_dim"] = int(view.integer("head_dim"))
    if view.model_type == "dots3_note_text":
        # vllm/models/dots3_note/nvidia/model.py (Dots3NotePaddedMLAAttention): rows as wide as a window's.
        facts["serving_row_width"] = _dots_row(view)
    if view.model_type == "qwen4_exp_text":
        # vllm/models/qwen4_exp/nvidia/model.py (get_mamba_specs_from_config): counted without n-grams too.
        facts["ngram_conv_width"] = int(view.integer("hc_count") * view.integer("hidden_size"))
        columns = (view.integer("ple_conv_kernel_size") - 1) * view.integer("ngram_size")
        facts["ngram_conv_columns"] = int(columns)
        chosen, group = map(view.optional_integer, ("indexer_budget", "indexer_compress_ratio"))
        if chosen and group:
            facts["chosen_groups"] = int(chosen // group)
    return facts


def _dots_row(view: ConfigView) -> int:
    nope = view.optional_integer("swa_qk_nope_head_dim", default=192, lowest=0) or 0
    width = view.optional_integer("swa_head_dim", default=256, lowest=0) or 0
    rope = view.optional_integer("swa_qk_rope_head_dim", default=max(0, width - nope), lowest=0) or 0
    return int(view.optional_integer("swa_kv_lora_rank", default=1024) or 1024) + int(rope)


def _mimo_window(view: ConfigView) -> dict[str, int | str | bool | None]:
    """The windowed layers' own heads and widths where they are not twice the KV heads and the same widths.

    vllm/model_executor/models/mimo_v2.py; the transformers class knows num_key_value_heads and head_dim only.
    """
    rule = {
        "num_kv_heads": ("swa_num_key_value_heads", "num_key_value_heads", 2),
        "head_dim": ("swa_head_dim", "head_dim", 1),
        "v_head_dim": ("swa_v_head_dim", "v_head_dim", 1),
    }
    found: dict[str, int | str | bool | None] = {}
    for name, (own, shared, times) in rule.items():
        value, usual = view.optional_integer(own), view.optional_integer(shared)
        if value is not None and usual is not None and value != times * usual:
            found[f"serving_window_{name}"] = int(value)
    return found


def serving_lengths(view: ConfigView) -> tuple[int | None, int]:
    """(the default max_model_len, the longest that is accepted); 0: no key bounds it.

    The smallest of the length keys; model_max_length overrides it; a rope factor multiplies it unless the
    rope type is one whose configs are scaled already; longrope serves its original length by default.
    """
    derived: float | None = None
    own = OWN_LENGTHS.get(view.model_type)
    if own is not None and not view.given(*LENGTH_KEYS):
        return own, own
    for key in LENGTH_KEYS:
        value = view.get(key)
        if _is_length(value) and (derived is None or value < derived):
            derived = value
    ceiling = view.get("model_max_length")
    if _is_length(ceiling) and ceiling:
        derived = ceiling
    if derived is None:
        return None, 0
    ropes = rope_entries(view)
    if ropes and "gemma3" not in view.model_type:
        derived *= _factor(ropes)
    default = int(derived)
    if any(kind == "longrope" for kind, _ in ropes):
        original = view.get("original_max_position_embeddings")
        if _is_length(original):
            default = int(original)
    longest = int(derived)
    if _is_length(ceiling):
        longest = max(longest, int(ceiling))
    return default, longest


def yarn_length(view: ConfigView) -> int | None:
    """The original length times the factor: a YaRN model's length before vLLM 0.30 (None: no YaRN)."""
    ropes = rope_entries(view)
    original = factor = None
    if not ropes and view.model_type in CLASS_YARN and not view.given("rope_parameters", "rope_scaling"):
        length, times = CLASS_YARN[view.model_type]
        return length * times
    for kind, entry in ropes:
        if kind not in ("longrope", "llama3"):
            factor = entry.get("factor", factor)
        if kind == "yarn":
            original = entry.get("original_max_position_embeddings", view.get("max_position_embeddings"))
    if original is None or not _is_length(original) or "gemma3" in view.model_type:
        return None
    stretch = factor if isinstance(factor, (int, float)) and 0 < factor < 10**6 else 1.0
    return int(original * stretch)


def _is_length(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 10**15


def _factor(ropes: list[tuple[str, Json]]) -> float:
    factor: Any = 1.0
    for kind, entry in ropes:
        if kind not in SCALED:
            factor = entry.get("factor", factor)
    return factor if isinstance(factor, (int, float)) and 0 < factor < 10**6 else 1.0


def rope_entries(view: ConfigView) -> list[tuple[str, Json]]:
    """(type, parameters) of the rope settings: one for the model, or one a layer type."""
    for key in ("rope_parameters", "rope_scaling"):
        value = view.get(key)
        if isinstance(value, Mapping) and value:
            inner = [entry for entry in value.values() if isinstance(entry, Mapping)]
            entries = inner if len(inner) == len(value) else [value]
            return [(_rope_type(entry), entry) for entry in entries]
    return []


def _rope_type(entry: Json) -> str:
    kind = entry.get("rope_type", entry.get("type", "default"))
    return {"su": "longrope", "mrope": "default"}.get(kind, kind) if isinstance(kind, str) else "default"


def serving_kv_scheme(config: Json | None) -> str | None:
    """The format that ``auto`` becomes under vLLM, or None (vllm/utils/torch_utils.py,
    get_kv_cache_quant_algo_string).

    ModelOpt files count only where they say that ModelOpt made them (quant_method or producer);
    compressed-tensors ones where they have a kv_cache_scheme.
    """
    if not config:
        return None
    method = _quant_method(config)
    if method.startswith("compressed"):
        return "fp8" if config.get("kv_cache_scheme") else None
    if not method.startswith("modelopt"):
        return None
    nested = config.get("quantization")
    inner = nested if isinstance(nested, Mapping) else config
    scheme = (
        inner.get("kv_cache_scheme")
        or config.get("kv_cache_scheme")
        or inner.get("kv_cache_quant_algo")
        or config.get("kv_cache_quant_algo")
    )
    if isinstance(scheme, Mapping):
        bits = scheme.get("num_bits") if scheme.get("type") == "float" else None
        static = scheme.get("dynamic") is False
        scheme = "fp8" if bits == 8 and static else "nvfp4" if bits == 4 else None
    return _MODELOPT_WORDS.get(scheme.lower()) if isinstance(scheme, str) else None


def _quant_method(config: Json) -> str:
    """quant_method; ModelOpt's older files name their producer instead."""
    producer, inner = config.get("producer"), config.get("quantization")
    if isinstance(inner, Mapping):
        by_modelopt = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
        if (by_modelopt or "modelopt_quant_config" in inner) and inner.get("quant_algo") is not None:
            return "modelopt"
    method = config.get("quant_method")
    return method.lower() if isinstance(method, str) else ""
