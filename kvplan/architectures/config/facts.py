"""Facts of the whole model in a config: element type, longest context, quantisation, KV scheme."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvplan.architectures.config.engine_facts import LENGTH_KEYS, SCALED
from kvplan.architectures.config.plain import HEADS, WIDTHS
from kvplan.architectures.config.text_part import TextPart
from kvplan.architectures.config.view import LARGEST, ConfigView, check_integer
from kvplan.errors import KvplanError
from kvplan.record import Json
from kvplan.weights.stored import foreign_method

# Read only where none of those is there: LED, RWKV, OpenELM.
_OTHER_LENGTH_KEYS = ("max_decoder_position_embeddings", "context_length", "max_context_length")
_LAYER_WORDS = ("attention", "conv", "hybrid")

# Config values that one engine's rule or another needs as they stand (vLLM's block alignment and defaults).
_FACT_KEYS = (
    "chunk_size",
    "mamba_chunk_size",
    "max_source_positions",
    "index_topk",
    "sliding_window",
    "use_sliding_window",
    "attention_chunk_size",
    "is_causal",
    "use_bidirectional_attention",
    "num_experts",
    "intermediate_size",
    "moe_intermediate_size",
)


def longest_context(part: TextPart) -> int | None:
    """The model's own maximum length in tokens, or None where the config does not say.

    The smallest of the length keys (a ``model_max_length`` overrides them), times the rope scaling factor
    where the rope type's files state the unscaled length (linear, dynamic); gemma3 files state the scaled
    one. Source: vllm-project/vllm 0.32 vllm/config/model.py, _get_and_verify_max_len.
    """
    view = part.view
    lengths = [found for key in LENGTH_KEYS if (found := _length(view, key)) is not None]
    own = _length(view, "model_max_length")
    length = own if own is not None else min(lengths, default=None)
    if length is None:
        length = next(
            (found for key in _OTHER_LENGTH_KEYS if (found := _length(view, key)) is not None), None
        )
    if length is None:
        return None
    if len(part.levels) > 1 and part.levels[-1].path:
        return length  # the rule looks at the top of the file only
    return _scaled(length, part.top.model_type, view)


def _length(view: ConfigView, key: str) -> int | None:
    """A length, or None where the key is missing or says "no limit" (zero, negative, 1e30)."""
    value, origin = view.find(key)
    if value is None:
        return None
    if isinstance(value, float) and value >= LARGEST:
        return None
    number = check_integer(value, origin, -LARGEST, 10**40)
    return number if 0 < number <= LARGEST else None


def _scaled(length: int, model_type: str, view: ConfigView) -> int:
    if "gemma3" in model_type:
        return length
    factor: Any = 1
    for rope in _ropes(view):
        if rope_type(rope) not in SCALED:
            factor = rope.get("factor", factor)
    if factor is None:
        return length
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= 10**6:
        raise KvplanError("bad-config", f"{view.path}rope_scaling.factor is not a number above 0")
    return int(length * factor)


def _ropes(view: ConfigView) -> Iterator[Json]:
    """The rope settings: one object, or one for each layer type."""
    for key in ("rope_parameters", "rope_scaling"):
        value = view.get(key)
        if isinstance(value, Mapping) and value:
            inner = [one for word, one in value.items() if _is_layer_word(word) and isinstance(one, Mapping)]
            yield from inner or [value]
            return


def _is_layer_word(word: Any) -> bool:
    return isinstance(word, str) and any(part in word for part in _LAYER_WORDS) and word != "attention_factor"


def rope_type(rope: Json) -> str:
    """rope_type (older files: type) of one rope object; "default" without one."""
    word = rope.get("rope_type", rope.get("type"))
    return word if isinstance(word, str) else "default"


def quantisation(
    part: TextPart, hf_quant_config: Json | None
) -> tuple[str | None, str | None, tuple[str, ...]]:
    """The checkpoint's quantisation method, the KV dtype that it asks for, and warnings.

    compressed-tensors and newer ModelOpt files state ``kv_cache_scheme`` ({num_bits: 8, type: float} is fp8,
    4-bit float is nvfp4); older ModelOpt files ``kv_cache_quant_algo``, in config.json or in the
    hf_quant_config.json beside it, which counts only where config.json has no quantization_config of its own
    (vllm-project/vllm 0.32 vllm/transformers_utils/config.py and vllm/utils/torch_utils.py,
    get_kv_cache_quant_algo_string).
    """
    foreign = next(filter(None, (foreign_method(level.raw) for level in part.levels)), None)
    if foreign is not None:
        return foreign, None, ()
    for config in (_quant_config(part), hf_quant_config):
        if isinstance(config, Mapping) and config:
            method = _method(config)
            scheme, warnings = _kv_scheme(config)
            return method, scheme, warnings
    return None, None, ()


def quant_object(part: TextPart, hf_quant_config: Json | None) -> Json | None:
    """The quantisation settings that count: config.json's, else those of the file beside it."""
    own = _quant_config(part)
    return own if isinstance(own, Mapping) and own else hf_quant_config


def _quant_config(part: TextPart) -> Any:
    for level in (part.levels[0], *reversed(part.levels[1:])):
        for key in ("quantization_config", "compression_config"):
            value = level.raw.get(key)
            if isinstance(value, Mapping) and value:
                return value
    return None


_SPELLED = {"compressed_tensors": "compressed-tensors", "auto_round": "auto-round", "inc": "auto-round"}
"""A method's name as some checkpoints write it → the usual one."""


def _method(config: Json) -> str | None:
    word = config.get("quant_method")
    if isinstance(word, str) and word:
        word = word.lower()[:60]
        return _SPELLED.get(word, word)
    producer = config.get("producer")
    inner = config.get("quantization")
    if (isinstance(producer, Mapping) and producer.get("name") == "modelopt") or isinstance(inner, Mapping):
        return "modelopt"
    return None


def _kv_scheme(config: Json) -> tuple[str | None, tuple[str, ...]]:
    inner = config.get("quantization")
    holders = [inner, config] if isinstance(inner, Mapping) else [config]
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        for holder in holders:
            value = holder.get(key)
            if isinstance(value, Mapping) and value:
                word = _scheme_word(value)
            elif isinstance(value, str) and value:
                word = {"fp8": "fp8", "nvfp4": "nvfp4", "none": "", "auto": ""}.get(value.lower())
            else:
                continue
            if word is None:
                return None, (
                    f"the checkpoint's KV scheme ({key}) is not known; the cache stays in the model's dtype",
                )
            return word or None, ()
    return None, ()


def _scheme_word(scheme: Json) -> str | None:
    bits, kind = scheme.get("num_bits"), scheme.get("type")
    if kind == "float" and not scheme.get("dynamic"):
        return {8: "fp8", 4: "nvfp4"}.get(bits) if isinstance(bits, int) else None
    return None


def plain_numbers(view: ConfigView, *, strict: bool = True) -> tuple[int, int, int]:
    """num_attention_heads, hidden_size, vocab_size; 0 where the config has none.

    Not strict: 0 as well where they are lists (vision towers, which have no cache anyway).
    """
    try:
        return _plain_numbers(view)
    except KvplanError:
        if strict:
            raise
        return 0, 0, 0


def _plain_numbers(view: ConfigView) -> tuple[int, int, int]:
    heads = view.optional_integer("decoder_attention_heads", "num_decoder_attention_heads", *HEADS, lowest=0)
    hidden = view.optional_integer(*WIDTHS, "emb_dim", lowest=0)
    vocab = view.optional_integer("vocab_size", "padded_vocab_size", lowest=0)
    return int(heads or 0), int(hidden or 0), int(vocab or 0)


def other_facts(part: TextPart) -> dict[str, int | str | bool | None]:
    """Values that one engine's rule needs, under the config's own key names.

    top_model_type is the file's own; rope_type and original_max_position_embeddings serve vLLM, which
    starts a longrope model at its original length.
    """
    view = part.view
    facts: dict[str, int | str | bool | None] = {"top_model_type": part.top.model_type}
    for key in _FACT_KEYS:
        value = view.get(key)
        if isinstance(value, (int, str, bool)) and len(str(value)) < 40:
            facts[key] = value
    ropes = list(_ropes(view))
    if ropes:
        facts["rope_type"] = rope_type(ropes[0])
    original = part.top.raw.get("original_max_position_embeddings")
    if isinstance(original, int) and not isinstance(original, bool) and 0 < original <= LARGEST:
        facts["original_max_position_embeddings"] = original
    return facts
