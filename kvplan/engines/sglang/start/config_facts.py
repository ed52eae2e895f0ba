"""Keys that SGLang reads of a config and the layers do not carry.

sgl-project/sglang 0.5.23 utils/hf_transformers/common.py (get_context_length, get_hf_text_config, the
registry of config classes), arg_groups/memory_hook.py (adjust_mem_fraction_for_vlm),
layers/quantization/{modelopt_quant,compressed_tensors/compressed_tensors,fp8}.py and
model_loader/weight_utils.py (get_quant_config), model_runner_components/spec_aux_hidden_state.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kvplan.architectures.config.class_names import class_facts
from kvplan.architectures.config.engine_facts import rope_entries
from kvplan.architectures.config.facts import quant_object
from kvplan.architectures.config.text_part import find_text_part
from kvplan.architectures.config.view import ConfigView, check_number, split_quant
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import Json, record

LENGTH_KEYS = (
    "max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings",
)  # fmt: skip
"""CONTEXT_LENGTH_KEYS: the first that is there counts."""
DEFAULT_LENGTH = 2048
_OWN_LENGTHS = {
    "chatglm": ("seq_length", 2048), "kimi_linear": ("max_position_embeddings", 4096),
    "step3_text": ("max_seq_len", 65536), "step3p5": ("max_seq_len", 128000),
    "dbrx": ("max_seq_len", 2048), "nemotron_h": ("max_position_embeddings", 4096),
    "qwen3_next": ("max_position_embeddings", 32768),
}  # fmt: skip
"""Defaults of config classes of SGLang's own, where transformers has none or others."""
_STATED_SCALED = frozenset({"llama3", "yarn", "longrope", "su"})
"""Rope types whose parameters get an original_max_position_embeddings (transformers'
modeling_rope_utils.py, standardize_rope_params): the length is the scaled one already."""
VISION = (24, 1024)
"""Layers and width of an image encoder whose config object has no such attributes."""
_LAYERS, _WIDTH = "num_hidden_layers", "hidden_size"
_OWN_VISION: dict[str, tuple[int | None, int | None]] = {
    **dict.fromkeys(
        """bailingmm_moe_v2_lite bailing_moe_v3_vl qwen4_exp qwen3_5 qwen3_5_moe intern_s2_preview
        interns2_mobius""".split(),
        (None, 1152),
    ),
    **dict.fromkeys(
        "deepseek_vl_v2 multi_modality deepseek-ocr step3p7 inkling_mm_model".split(), (None, None)
    ),
    **dict.fromkeys("kimi_vl locateanything kimi_k25 minicpmv4_6 minicpmv4_7".split(), (27, 1152)),
    "internvl_chat": (48, 3200),
    "step3_vl": (63, 1792),
    "kimi_k3": (27, 1024),
    "dots_vlm": (42, 1536),
    "dots_ocr": (42, 1536),
    "jet_vlm": (12, 768),
    "gemma4_unified": (16, 768),
}
"""model_type of a config class of SGLang's own → its image encoder's defaults; None: no such attribute."""
_RENAMED = {"kimi_k3": ("vt_num_hidden_layers", "vt_hidden_size")}
_NO_VISION = frozenset(
    """NemotronH_Nano_VL_V2 NemotronH_Nano_Omni_Reasoning_V3 nemotron_h_omni glm5_next minimax_m3_vl gemma4
    gemma4_unified diffusion_gemma embedding_gemma2""".split()
)
"""Without a vision_config of their own these have none; other classes build the default one."""


@record()
class ConfigFacts:
    """Facts that SGLang reads of a config."""

    length: int | None
    """its context"""
    fp8: bool
    """``auto`` is an fp8 cache"""
    vision: tuple[int, int] | None = None
    """layers and width of the image encoder"""
    drafts: int = 0
    """prediction layers that are charged without a draft model"""
    text_part: bool = False
    """the text model is a part of the config"""
    remote: bool = False
    """the repository brings a model class"""
    windowed: bool = False
    """Exaone's sliding_window_pattern is set"""
    encoder: int | None = None
    """Whisper's encoder layers"""
    sinks: bool = False
    """attention has sinks"""
    stretched: int | None = None
    """the length that older releases read of Gemma 3"""
    fp8_beside: bool = False
    """an fp8 cache is said beside the config alone"""


@lru_cache(maxsize=512)
def facts_of(model: Model) -> ConfigFacts:
    """The facts of a model's config. A card keeps the keys of the config that decide sizes: its own fields
    say the length, the KV format and the prediction layers."""
    drafts, fp8 = len(model.draft_layers), _field_says_fp8(model)
    raw, quant = split_quant(model.config or {})
    try:
        part = find_text_part(raw)
    except KvplanError:  # no config, or a GGUF file's keys
        seen = VISION if "ForConditionalGeneration" in (model.architecture or "") else None
        return ConfigFacts(model.max_model_len, fp8, seen, drafts)
    whole = model.provenance.how == "config"
    view, top = part.view, part.top.raw
    vision = image_encoder(top, part.top.model_type)
    if part.top.model_type.startswith("mimo_v2") and "audio_config" not in top:
        vision = None  # multimodal only with both encoders (configs/model_config.py)
    auto_map = top.get("auto_map")
    return ConfigFacts(
        length=context_length(view) if whole else model.max_model_len or context_length(view),
        fp8=kv_scheme(quant_object(part, None), quant) == "fp8" if whole else fp8,
        vision=vision,
        drafts=_whole_number(view.get("num_nextn_predict_layers")) if whole else drafts,
        text_part=len(part.levels) > 1,
        remote=isinstance(auto_map, Mapping) and "AutoModel" in auto_map,
        windowed=view.model_type.startswith("exaone") and view.get("sliding_window_pattern") is not None,
        encoder=_whole_number(view.get("encoder_layers")) or None if view.model_type == "whisper" else None,
        sinks=_has_sinks(view),
        stretched=_stretched(view),
        fp8_beside=whole and kv_scheme(quant_object(part, None), None) is None,
    )


def _stretched(view: ConfigView) -> int | None:
    """Gemma 3's length times its rope's factor, as releases before 0.5.10 have it."""
    rope, length = view.get("rope_scaling"), view.get("max_position_embeddings")
    factor = rope.get("factor") if isinstance(rope, Mapping) else None
    plain = isinstance(factor, (int, float)) and not isinstance(factor, bool) and 1 < factor < 10**6
    if not view.model_type.startswith("gemma3") or not plain or not _whole_length(length):
        return None
    return int(factor * length)


def _whole_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9


def _field_says_fp8(model: Model) -> bool:
    method = model.quantization or ""
    scaled = method.startswith(("modelopt", "compressed", "fp8", "mxfp8"))
    return scaled and (model.kv_cache_scheme or "").startswith("fp8")


def _whole_number(value: Any) -> int:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10_000
    return int(value) if usable else 0


def context_length(view: ConfigView) -> int:
    """The context: the first length key, times the factor of a rope type that is not scaled already."""
    factor = _factor(view)
    key, default = _OWN_LENGTHS.get(view.model_type, ("", 0))
    for name in LENGTH_KEYS:
        value, origin = view.find(name)
        if name == key and not view.given(name):
            value = default
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return max(1, int(factor * check_number(value, origin, 1, 10**15)))
    return DEFAULT_LENGTH


def _factor(view: ConfigView) -> float:
    ropes = rope_entries(view)
    if len(ropes) != 1 or view.model_type.startswith("gemma3"):
        return 1  # one object a layer type has no factor of its own
    kind, entry = ropes[0]
    if kind in _STATED_SCALED or "original_max_position_embeddings" in entry:
        return 1
    factor = entry.get("factor", 1)
    usable = isinstance(factor, (int, float)) and not isinstance(factor, bool) and 0 < factor < 10**6
    return factor if usable else 1


def kv_scheme(config: Json | None, hf_quant_config: Json | None) -> str | None:
    """``fp8`` where ``auto`` becomes an fp8 cache: the quantisation's kv_cache_quant_algo says FP8."""
    if config is None:
        return _modelopt_scheme(hf_quant_config) if hf_quant_config else None
    method = str(config.get("quant_method") or "modelopt").lower()
    if method.startswith("compressed"):
        scheme = config.get("kv_cache_scheme")
        return "fp8" if _is_static_fp8(scheme) else None
    if method.startswith("modelopt"):
        mixed = str(config.get("quant_algo")).upper() == "MIXED_PRECISION"
        complete = "quantized_layers" in config and (
            "kv_cache_quant_algo" in config or "kv_cache_scheme" in config
        )
        if mixed and not complete and hf_quant_config and _has_nvfp4_layers(config):
            return _modelopt_scheme(hf_quant_config)
        return _modelopt_scheme(config)
    if method in ("fp8", "mxfp8"):
        return "fp8" if _says_fp8(config.get("kv_cache_quant_algo")) else None
    return None


def _has_nvfp4_layers(config: Json) -> bool:
    """Only then is a mixed checkpoint ModelOpt's (configs/model_config.py, _parse_modelopt_quant_config)."""
    layers = config.get("quantized_layers")
    if not isinstance(layers, Mapping):
        return False
    return any(
        isinstance(one, Mapping) and str(one.get("quant_algo")).upper() in ("NVFP4", "W4A16_NVFP4")
        for one in layers.values()
    )


def _modelopt_scheme(config: Json) -> str | None:
    """Flat settings (quant_algo at the top) with a kv_cache_scheme, or those under ``quantization``."""
    nested = config.get("quantization")
    if config.get("quant_algo") is None and isinstance(nested, Mapping):
        return "fp8" if _says_fp8(nested.get("kv_cache_quant_algo")) else None
    scheme = config.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return "fp8" if scheme.get("type") == "float" and scheme.get("num_bits") == 8 else None
    if isinstance(scheme, str):
        return "fp8" if scheme.strip().upper() in ("FP8", "FLOAT8") else None
    return "fp8" if _says_fp8(config.get("kv_cache_quant_algo")) else None


def _says_fp8(word: Any) -> bool:
    return isinstance(word, str) and word.upper() == "FP8"


def _is_static_fp8(scheme: Any) -> bool:
    """One static symmetric scale of the tensor (CompressedTensorsKVCacheMethod.is_supported_scheme)."""
    return (
        isinstance(scheme, Mapping)
        and (scheme.get("type"), scheme.get("num_bits"), scheme.get("strategy")) == ("float", 8, "tensor")
        and bool(scheme.get("symmetric", True))
        and not scheme.get("dynamic")
    )


def image_encoder(raw: Json, model_type: str) -> tuple[int, int] | None:
    """Layers and width of the image encoder as attributes of SGLang's config object; None without one."""
    given = raw.get("vision_config")
    if model_type in _NO_VISION and not isinstance(given, Mapping):
        return None
    own = _OWN_VISION.get(model_type)
    facts = class_facts(model_type) or {}
    if own is None and not isinstance(given, Mapping) and "vision_config" not in facts.get("sub_configs", {}):
        return None
    inner = given if isinstance(given, Mapping) else {}
    if own is not None:
        names = _RENAMED.get(model_type, (_LAYERS, _WIDTH))
        found = tuple(inner.get(name, default) for name, default in zip(names, own, strict=True))
    else:
        found = _by_class(facts, inner)
    layers, width = (
        value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**6 else default
        for value, default in zip(found, VISION, strict=True)
    )
    return layers, width


def _by_class(facts: Json, inner: Json) -> tuple[Any, Any]:
    """The attributes of transformers' vision class: its aliases, what is given, its defaults. ``depth`` is
    no alias there: the class has no attribute of the common name."""
    declared = facts.get("sub_configs", {}).get("vision_config")
    word = inner.get("model_type")
    if isinstance(declared, Mapping):
        name = str(word) if declared.get("auto") and isinstance(word, str) else str(declared.get("type"))
    else:
        name = str(declared or word)
    known = class_facts(name) or {}
    if not facts and not known:
        return None, None  # a class that is not known keeps a plain dictionary, which has no attributes
    defaults, aliases = known.get("defaults", {}), known.get("aliases", {})
    found = []
    for key in (_LAYERS, _WIDTH):
        real = aliases.get(key, key)
        real = key if real == "depth" else real
        found.append(inner.get(key, inner.get(real, defaults.get(real, defaults.get(key)))))
    return found[0], found[1]


def _has_sinks(view: ConfigView) -> bool:
    """learnable_sink, which Hy 4 has unless it says otherwise (configs/hy_v4.py), or MiMo-V2's two switches
    (configs/model_config.py, _detect_attention_sinks)."""
    keys = ["learnable_sink"]
    if view.model_type == "hy_v4" and view.get("learnable_sink") is None:
        return True
    if view.model_type.startswith("mimo_v2"):
        keys += ["add_swa_attention_sink_bias", "add_full_attention_sink_bias"]
    return any(bool(view.get(key)) for key in keys)
