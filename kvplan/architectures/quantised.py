"""``quantization_config`` (or ModelOpt's hf_quant_config.json) → which module is stored how.

Source: vllm-project/vllm vllm/model_executor/layers/quantization/ (0.32): fp8.py, modelopt.py, mxfp4.py,
compressed_tensors/, auto_awq.py, auto_gptq.py; vllm/models/deepseek_v4/quant_config.py. A method that is
not known is refused: its bytes follow from the checkpoint's headers only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvplan.architectures.auto_round import auto_round
from kvplan.architectures.config.text_part import TextPart
from kvplan.architectures.config.view import check_integer
from kvplan.architectures.module_lists import (
    component_list,
    exact_list,
    modelopt_list,
    pattern_list,
    substring_list,
)
from kvplan.architectures.quark import quark
from kvplan.errors import KvplanError, did_you_mean
from kvplan.record import Json
from kvplan.weights.formats import (
    FP8_CHANNEL,
    FP8_TENSOR,
    INT8_CHANNEL,
    MXFP4,
    MXFP8,
    NVFP4,
    Format,
    bnb_4bit,
    fp8_block,
    grouped,
)
from kvplan.weights.quantisation import UNQUANTISED, Modules, Quantisation
from kvplan.weights.stored import FOREIGN, FOREIGN_WEIGHTS, foreign_method

Config = Json

_ALGORITHMS: dict[str, Format] = {
    "FP8": FP8_TENSOR,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL,
    "FP8_PB_WO": fp8_block(128, 128),
    "NVFP4": NVFP4,
    "W4A16_NVFP4": NVFP4,
    "W4A8_NVFP4_FP8": NVFP4,
    "MXFP8": MXFP8,
    "MXFP4": MXFP4,
}


def quantisation_of(part: TextPart, hf_quant_config: Config | None) -> Quantisation:
    """How the checkpoint's modules are stored. Raises KvplanError(unknown-quantization | foreign-weights)."""
    foreign = next(filter(None, (foreign_method(level.raw) for level in part.levels)), None)
    if foreign is not None:
        raise KvplanError(
            FOREIGN_WEIGHTS,
            f"its weights are in {FOREIGN[foreign]}",
            help=("-e mlx",) * (foreign == "mlx")
            + ("name the model that it was made from, with -q for a format",),
        )
    config = _stated(part)
    if config is None:
        if hf_quant_config is None:
            return UNQUANTISED
        # vLLM takes the file beside the config for ModelOpt's only where it names its producer.
        producer = hf_quant_config.get("producer")
        inner = hf_quant_config.get("quantization")
        stated = inner if isinstance(inner, Mapping) else hf_quant_config
        if isinstance(producer, Mapping) and producer.get("name") == "modelopt":
            return _modelopt(stated, part)
        if stated.get("quant_algo"):  # quantised, but by nobody knows what, and all but which modules
            raise _unknown("producer", producer, [])
        return UNQUANTISED
    method = str(config.get("quant_method") or config.get("quant_type") or "").lower()
    if not method and config.get("quant_algo"):
        method = "modelopt"
    if str(config.get("quant_algo") or "") == "MIXED_PRECISION":
        return _modelopt(config, part)
    if method not in _METHODS:
        raise _unknown("quant_method", method, list(_METHODS))
    return _METHODS[method](config, part)


def _stated(part: TextPart) -> Config | None:
    """quantization_config of the wrapper or of the text part."""
    for level in part.levels:
        for key in ("quantization_config", "compression_config"):
            value = level.raw.get(key)
            if isinstance(value, Mapping) and value:
                return value
    return None


def _unknown(key: str, word: object, known: list[str]) -> KvplanError:
    near = did_you_mean(str(word), known)
    ways = [f"did you mean {near!r}?"] if near else []
    return KvplanError(
        "unknown-quantization",
        f"quantization_config.{key} {str(word)[:60]!r} is not known: its bytes cannot be derived",
        help=(
            *ways,
            "put the checkpoint's safetensors files or their index beside the config",
            "give the weights of one GPU yourself: --weights 15GiB",
        ),
    )


def _listed(config: Config, *keys: str) -> list[Any]:
    for key in keys:
        value = config.get(key)
        if isinstance(value, list):
            return value
    return []


def _number(config: Config, key: str, default: int | None = None, lowest: int = 1) -> int:
    value = config.get(key)
    if value is None and default is not None:
        return default
    return check_integer(value, f"quantization_config.{key}", lowest)


def _rules(spared: Modules) -> tuple[tuple[Modules, Format | None], ...]:
    return ((spared, None),)


# Wrappers whose tower vLLM builds without quantisation whatever compressed-tensors' list says (kimi_k25.py).
_BARE_TOWERS = ("kimi_k25", "kimi_k3")


def _fp8(config: Config, part: TextPart) -> Quantisation:
    """Blocks with float32 scales, or one scale a matrix. DeepSeek V4: one-byte scales, MXFP4 experts."""
    block = config.get("weight_block_size")
    spared = exact_list(_listed(config, "modules_to_not_convert", "ignored_layers"))
    if not block:
        return Quantisation("fp8", FP8_TENSOR, _rules(spared))
    if not isinstance(block, list) or len(block) != 2:
        raise _unknown("weight_block_size", block, [])
    high, wide = (check_integer(side, "quantization_config.weight_block_size") for side in block)
    if part.view.model_type != "deepseek_v4":
        return Quantisation("fp8", fp8_block(high, wide), _rules(spared))
    words = {"fp4": MXFP4, "fp8": fp8_block(high, wide, scale_bytes=1)}
    word = str(part.view.get("expert_dtype", default="fp4"))
    if word not in words:
        raise _unknown("expert_dtype", word, list(words))
    form = NVFP4 if config.get("moe_quant_algo") == "NVFP4" else words[word]
    return Quantisation("fp8", fp8_block(high, wide, scale_bytes=1), _rules(spared), experts=form)


def _modelopt(config: Config, part: TextPart) -> Quantisation:
    """One algorithm for every matrix but the excluded ones, or one for each listed module."""
    if part.view.model_type == "deepseek_v4":
        return _fp8(config, part)
    algorithm = str(config.get("quant_algo") or "").upper()
    spared = modelopt_list(_listed(config, "exclude_modules", "ignore"))
    if algorithm != "MIXED_PRECISION":
        return Quantisation("modelopt", _algorithm(algorithm), _rules(spared), head=True)
    layers = config.get("quantized_layers")
    if not isinstance(layers, Mapping) or not layers:
        raise _unknown("quantized_layers", layers, [])
    groups: dict[str, list[str]] = {}
    for path, recipe in layers.items():
        word = str(recipe.get("quant_algo") if isinstance(recipe, Mapping) else recipe).upper()
        groups.setdefault(word, []).append(str(path))
    named = tuple((component_list(paths), _algorithm(word)) for word, paths in groups.items())
    return Quantisation("modelopt", None, (*_rules(spared), *named), head=True)


def _algorithm(word: str) -> Format:
    if word not in _ALGORITHMS:
        raise _unknown("quant_algo", word, list(_ALGORITHMS))
    return _ALGORITHMS[word]


def _mxfp4(config: Config, part: TextPart) -> Quantisation:
    """Experts only; everything else stays as trained."""
    return Quantisation("mxfp4", None, experts=MXFP4)


def _compressed(config: Config, part: TextPart) -> Quantisation:
    """Groups of targets, each with the form of its weights; 'Linear' stands for every linear layer."""
    groups = config.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise _unknown("config_groups", groups, [])
    if str(config.get("format")) == "mxfp4-pack-quantized" and part.top.model_type == "kimi_k3":
        return _mxfp4(config, part)  # as vLLM rewrites it (models/config.py)
    rules: list[tuple[Modules, Format | None]] = [(pattern_list(_listed(config, "ignore")), None)]
    if part.top.model_type in _BARE_TOWERS:
        rules.append((substring_list(("vision_tower", "mm_projector")), None))
    general: Format | None = None
    for group in groups.values():
        if not isinstance(group, Mapping):
            raise _unknown("config_groups", group, [])
        weights = group.get("weights")
        form = _compressed_form(weights, group, config) if isinstance(weights, Mapping) else None
        targets = _listed(group, "targets")
        named = [target for target in targets if target != "Linear"]
        if len(named) < len(targets):
            general = form
        if named:
            rules.append((pattern_list(named), form))
    return Quantisation("compressed-tensors", general, tuple(rules), head=True)


def _compressed_form(weights: Config, group: Config, config: Config) -> Format:
    bits, kind = _number(weights, "num_bits"), str(weights.get("type") or "int")
    strategy = str(weights.get("strategy") or "tensor")
    form = str(group.get("format") or config.get("format") or "")
    if kind == "float" and bits == 4:
        return MXFP4 if form.startswith("mxfp4") or weights.get("group_size") == 32 else NVFP4
    if kind == "float" and bits == 8:
        return _compressed_fp8(weights, strategy)
    if kind == "int" and bits == 8 and strategy == "tensor":
        return FP8_TENSOR
    if kind == "int" and bits == 8 and strategy == "channel" and form in ("int-quantized", ""):
        return INT8_CHANNEL
    if kind == "int" and strategy in ("group", "channel"):
        return _compressed_groups(weights, bits, strategy)
    return _refuse(f"{kind}{bits} {strategy}")


def _compressed_groups(weights: Config, bits: int, strategy: str) -> Format:
    size = weights.get("group_size")
    width = 0 if strategy == "channel" or size in (None, -1) else check_integer(size, "group_size")
    return grouped(bits, width, zeros=weights.get("symmetric") is False, matrix_bytes=4)


def _compressed_fp8(weights: Config, strategy: str) -> Format:
    block = weights.get("block_structure")
    if strategy == "block" and isinstance(block, list) and len(block) == 2:
        return fp8_block(*(check_integer(side, "block_structure") for side in block))
    if strategy == "group" and weights.get("group_size") == 32:
        return MXFP8
    return {"tensor": FP8_TENSOR, "channel": FP8_CHANNEL}.get(strategy) or _refuse(strategy)


def _refuse(what: str) -> Format:
    raise _unknown("config_groups.weights", what, [])


def _awq(config: Config, part: TextPart) -> Quantisation:
    """Four bits with a scale and a zero point for each group of inputs."""
    form = grouped(
        _number(config, "bits", 4) if "bits" in config else _number(config, "w_bit", 4),
        _group(config),
        zeros=config.get("zero_point", True) is not False,
    )
    spared = substring_list(_listed(config, "modules_to_not_convert"))
    return Quantisation("awq", form, _rules(spared), head=config.get("lm_head") is True)


def _group(config: Config) -> int:
    """group_size (q_group_size), 0 where one scale serves a whole row (-1)."""
    size = config.get("group_size", config.get("q_group_size", 128))
    return 0 if size in (-1, None) else check_integer(size, "quantization_config.group_size")


def _gptq(config: Config, part: TextPart) -> Quantisation:
    """bits with a scale and a zero point for each group, and four bytes an input for its group's index."""
    ordered = config.get("desc_act") is True
    form = grouped(_number(config, "bits"), _group(config), zeros=True, column_bytes=4, act_order=ordered)
    rules = _dynamic(config.get("dynamic"), form)
    chosen = _listed(config, "modules_in_block_to_quantize")
    if chosen:
        names = [name for entry in chosen for name in (entry if isinstance(entry, list) else [entry])]
        return Quantisation("gptq", None, (*rules, (substring_list(names), form)))
    return Quantisation("gptq", form, rules, head=config.get("lm_head") is True)


def _dynamic(table: Any, form: Format) -> tuple[tuple[Modules, Format | None], ...]:
    """GPTQModel's table, in its order: ``-:`` before an expression spares modules, another one has settings
    of its own (vllm's utils/gptq_utils.py, get_dynamic_override)."""
    rules: list[tuple[Modules, Format | None]] = []
    for text, own in (table if isinstance(table, Mapping) else {}).items():
        if str(text).startswith("-:"):
            rules.append((pattern_list([f"re:{str(text)[2:]}"]), None))
            continue
        stored = form
        if isinstance(own, Mapping) and own.keys() & {"bits", "group_size"}:
            wide = _group(own) if "group_size" in own else form.block[1]
            bits, ordered = _number(own, "bits", form.bits), form.act_order
            stored = grouped(bits, wide, zeros=True, column_bytes=4, act_order=ordered)
        rules.append((pattern_list([f"re:{str(text).removeprefix('+:')}"]), stored))
    return tuple(rules)


def _bitsandbytes(config: Config, part: TextPart) -> Quantisation:
    """NF4 in blocks of 64 (scales of one byte under double quantisation), or int8 with one scale a row."""
    spared = component_list(_listed(config, "llm_int8_skip_modules"))
    if config.get("load_in_4bit") or config.get("_load_in_4bit"):
        form = bnb_4bit(double=bool(config.get("bnb_4bit_use_double_quant")))
    elif config.get("load_in_8bit") or config.get("_load_in_8bit"):
        form = INT8_CHANNEL
    else:
        raise _unknown("load_in_4bit", "neither 4bit nor 8bit", [])
    return Quantisation("bitsandbytes", form, _rules(spared))


def _fbgemm(config: Config, part: TextPart) -> Quantisation:
    return Quantisation(
        "fbgemm_fp8", FP8_CHANNEL, _rules(exact_list(_listed(config, "modules_to_not_convert")))
    )


_METHODS: dict[str, Callable[[Config, TextPart], Quantisation]] = {
    "fp8": _fp8,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed,
    "awq": _awq,
    "gptq": _gptq,
    "bitsandbytes": _bitsandbytes,
    "fbgemm_fp8": _fbgemm,
    "quark": lambda config, part: quark(config, lambda what: _unknown("weight", what, [])),
    **dict.fromkeys(
        ("auto-round", "auto_round", "inc"),
        lambda config, part: auto_round(config, lambda what: _unknown("data_type", what, [])),
    ),
}
