"""A build of a format: the model's config with the ``quantization_config`` of such builds.

A build's own config may leave more modules as trained, so an answer for a build says that it was derived.
Checked against published builds in tests/files/test_builds.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kvplan.architectures.config.engine_facts import serving_kv_scheme
from kvplan.architectures.config.view import split_quant, unquantised
from kvplan.architectures.inventory import NO_INVENTORY, inventory_of
from kvplan.errors import KvplanError
from kvplan.families import FullAttention, Kind, MultiHeadLatentAttention
from kvplan.later import regex
from kvplan.model import GGUF_MIXTURE, Layer, Model, runs_of
from kvplan.record import Json, record, replace
from kvplan.units import ceil_div
from kvplan.weights.inventory import Inventory, Role
from kvplan.weights.parts import TOWER_NAME, Part, part_of

Config = dict[str, Any]

_SMALL = regex(r"(?:^|\.)(?:shared_expert_gate|gate|router|in_proj_(?:a|b|ba))$")
"""Linear modules that builders leave alone: one output a head or an expert."""
_JOINT = regex(r"(?:^|\.)(?:fc|eh_proj|input_proj)$")
"""Modules that join the hidden states and the next token before a multi-token-prediction layer."""


@record()
class Form:
    """A format of builds. words: how it is told to people; experts_only: of a mixture of experts; whole: the
    ends of the paths of modules that it leaves as trained beside those that every build does."""

    words: str
    config: Callable[[list[str]], Config]
    experts_only: bool = False
    whole: tuple[str, ...] = ()
    attention: str = ""
    """ModelOpt's word for the format of attention's matrices, where that is another"""


# vllm-project/llm-compressor examples/ (FP8_DYNAMIC, FP8_BLOCK, W8A8, W4A16, NVFP4).
def _compressed(form: str, **weights: Any) -> Callable[[list[str]], Config]:
    def config(spared: list[str]) -> Config:
        groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
        return {
            "quant_method": "compressed-tensors",
            "format": form,
            "ignore": ["lm_head", *spared],
            "config_groups": groups,
        }

    return config


# NVIDIA/Model-Optimizer examples/llm_ptq.
def _modelopt(algorithm: str) -> Callable[[list[str]], Config]:
    return lambda spared: {
        "quant_method": "modelopt",
        "quant_algo": algorithm,
        "ignore": ["lm_head", *spared],
    }


def _fp8(spared: list[str]) -> Config:
    return {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": spared}


# casper-hansen/AutoAWQ.
def _awq(group: int = 128) -> Callable[[list[str]], Config]:
    return lambda spared: {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group,
        "zero_point": True,
        "modules_to_not_convert": spared,
    }


def _quark_mxfp4(spared: list[str]) -> Config:
    weight = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
    return {
        "quant_method": "quark",
        "global_quant_config": {"weight": weight},
        "exclude": ["lm_head", *spared],
    }


# ModelCloud/GPTQModel: decoder layers only.
def _gptq(bits: int, group: int = 128) -> Callable[[list[str]], Config]:
    return lambda spared: {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group,
        "dynamic": {f"-:{re.escape(path)}$": {} for path in spared},
    }


def _auto_round(spared: list[str]) -> Config:
    return {
        "quant_method": "auto-round",
        "bits": 4,
        "group_size": 128,
        "sym": True,
        "packing_format": "auto_round:auto_gptq",
        "extra_config": {path: {"bits": 16} for path in spared},
    }


# huggingface/transformers quantizers.
def _bitsandbytes(bits: int) -> Callable[[list[str]], Config]:
    return lambda spared: {
        "quant_method": "bitsandbytes",
        f"load_in_{bits}bit": True,
        "bnb_4bit_use_double_quant": True,
        "llm_int8_skip_modules": spared,
    }


def _ints(bits: int, group: int, *, symmetric: bool = True) -> Callable[[list[str]], Config]:
    return _compressed(
        "pack-quantized", num_bits=bits, type="int", strategy="group", group_size=group, symmetric=symmetric
    )


_LINEAR_ATTENTION = ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj")

FORMS: dict[str, Form] = {
    "fp8": Form("fp8 in blocks of 128 × 128", _fp8),
    "fp8-block": Form(
        "fp8 in blocks of 128 × 128",
        _compressed(
            "float-quantized", num_bits=8, type="float", strategy="block", block_structure=[128, 128]
        ),
    ),
    "fp8-dynamic": Form(
        "fp8, one scale an output",
        _compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
    ),
    "fp8-tensor": Form(
        "fp8, one scale a matrix",
        _compressed("float-quantized", num_bits=8, type="float", strategy="tensor"),
    ),
    "modelopt-fp8": Form("fp8, one scale a matrix", _modelopt("FP8")),
    "mxfp8": Form("mxfp8", _modelopt("MXFP8")),
    "int8": Form(
        "int8, one scale an output",
        _compressed("int-quantized", num_bits=8, type="int", strategy="channel", symmetric=True),
    ),
    "w8a16": Form(
        "int8, one scale an output",
        _compressed("pack-quantized", num_bits=8, type="int", strategy="channel", symmetric=True),
    ),
    "w4a16": Form("int4 in groups of 128", _ints(4, 128)),
    "w4a16-g64": Form("int4 in groups of 64", _ints(4, 64)),
    "w4a16-g32": Form("int4 in groups of 32", _ints(4, 32)),
    "w4a16-g32-asym": Form("int4 in groups of 32 with zero points", _ints(4, 32, symmetric=False)),
    "bf16-int4": Form(
        "int4 in groups of 32 with zero points, linear attention as trained",
        _ints(4, 32, symmetric=False),
        whole=_LINEAR_ATTENTION,
    ),
    "bf16-int8": Form(
        "int8 in groups of 32, linear attention as trained", _ints(8, 32), whole=_LINEAR_ATTENTION
    ),
    "auto-round": Form("int4 in groups of 128 with zero points", _auto_round),
    "awq": Form("int4 in groups of 128 with zero points", _awq()),
    "awq-g64": Form("int4 in groups of 64 with zero points", _awq(64)),
    "awq-g32": Form("int4 in groups of 32 with zero points", _awq(32)),
    "gptq": Form("int4 in groups of 128 with zero points and indices", _gptq(4)),
    "gptq-g64": Form("int4 in groups of 64 with zero points and indices", _gptq(4, 64)),
    "gptq-g32": Form("int4 in groups of 32 with zero points and indices", _gptq(4, 32)),
    "gptq-int8": Form("int8 in groups of 128 with zero points and indices", _gptq(8)),
    "nvfp4": Form(
        "nvfp4",
        _compressed("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16),
    ),
    # NVIDIA's newer ones of a mixture of experts quantise the experts alone; NVFP4_DEFAULT_CFG all matrices.
    "modelopt-nvfp4": Form("nvfp4", _modelopt("NVFP4"), experts_only=True),
    "modelopt-nvfp4-all": Form("nvfp4", _modelopt("NVFP4")),
    "nvfp4-fp8": Form("nvfp4, attention in fp8", _modelopt("NVFP4"), attention="FP8"),
    "mxfp4": Form(
        "mxfp4",
        _compressed("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32),
        experts_only=True,
    ),
    "quark-mxfp4": Form("mxfp4", _quark_mxfp4, experts_only=True),
    "bnb-4bit": Form("bitsandbytes nf4, scales of one byte", _bitsandbytes(4)),
    "bnb-8bit": Form("bitsandbytes int8", _bitsandbytes(8)),
}
"""Name of a format → what builds of it hold."""


def as_build(
    model: Model, form: str, name: str, whole: tuple[str, ...] = (), *, fp8_cache: bool = False
) -> Model:
    """The model as a build of that format holds it, under the build's name. whole: the ends of the paths of
    modules that it leaves as trained beside those that builds of the format do. fp8_cache: it declares such a
    cache, which ``auto`` then means.

    Where the model's tensors are not known its layers answer and its weights stay unknown. Raises
    KvplanError(unknown-quantization) for a format that is not in `FORMS`.
    """
    if form not in FORMS:
        raise KvplanError(
            "unknown-quantization", f"no build of the format {form!r} is known", help=", ".join(FORMS)
        )
    made = as_trained(model, name)
    if model.config is None:
        return replace(made, quantization=FORMS[form].config([])["quant_method"], counted=None, weights=None)
    stated = build_config(model.config, form, whole)
    return declaring_fp8(_holding(made, stated)) if fp8_cache else _holding(made, stated)


def as_another(model: Model, other: Model, name: str, whole: tuple[str, ...] = ()) -> Model:
    """The model with its matrices held as another build of the same layers holds its own. whole: as in
    `as_build`."""
    assert model.config is not None
    assert other.config is not None
    stated = dict(other.config["quantization_config"])
    layers = stated.get("quantized_layers")
    if layers is not None:
        stated["quantized_layers"] = {path: one for path, one in layers.items() if not path.endswith(whole)}
    plain = unquantised(split_quant(model.config)[0])
    return _holding(as_trained(model, name), {**plain, "quantization_config": stated})


def declaring_fp8(model: Model) -> Model:
    """The build with an FP8 cache declared in its config, as ModelOpt and llm-compressor write it."""
    config = dict(model.config or {})
    scheme = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
    config["quantization_config"] = {**config["quantization_config"], "kv_cache_scheme": scheme}
    served = serving_kv_scheme(config["quantization_config"])
    facts = {**model.facts, "serving_kv_scheme": served} if served else model.facts
    return replace(model, config=config, kv_cache_scheme="fp8", facts=facts)


def _holding(model: Model, config: Config) -> Model:
    method = config["quantization_config"]["quant_method"]
    return replace(model, quantization=method, config=config, counted=None, weights=None)


def as_trained(model: Model, name: str) -> Model:
    """The model in its own dtype, under another name; one that is stored so keeps what is known of it."""
    if not model.quantization and not model.kv_cache_scheme:
        return replace(model, id=name)
    facts = {key: value for key, value in model.facts.items() if key != "serving_kv_scheme"}
    config = None if model.config is None else unquantised(split_quant(model.config)[0])
    made = replace(model, id=name, quantization=None, kv_cache_scheme=None, facts=facts, config=config)
    return replace(made, counted=None, weights=None)


def as_text(model: Model) -> Model:
    """The model without its encoders, as a build of the text part alone has it."""
    config = model.config or {}
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        return model
    rest = {key: value for key, value in config.items() if not key.endswith("_config")}
    return replace(model, config={**rest, **text}, counted=None, weights=None)


def as_gguf(model: Model, mixture: str, name: str, *, latents: bool = True) -> Model:
    """The model as a GGUF file of that mixture of types: llama.cpp's rules say what its tensors take.

    latents False: a file without ``attention.key_length_mla``, of which K and V of every head are cached."""
    made = replace(model, id=name, facts={**model.facts, GGUF_MIXTURE: mixture})
    return made if latents else replace(made, runs=runs_of(map(_of_every_head, made.layers())))


def _of_every_head(layer: Layer) -> Layer:
    """A layer of latents as K, which the rotary key is a part of, and V of each head."""
    parts = (
        FullAttention(part.num_heads, part.qk_nope_head_dim + part.qk_rope_head_dim, part.v_head_dim)
        if isinstance(part, MultiHeadLatentAttention) and part.num_heads
        else part
        for part in layer.parts
    )
    return Layer(tuple(parts))


def as_foreign(model: Model, method: str, name: str) -> Model:
    """The model in a format whose bytes no rule here says: its layers answer, its weights are unknown."""
    made = as_trained(model, name)
    config = made.config and {**made.config, "quantization_config": {"quant_method": method}}
    return replace(made, quantization=method, config=config, counted=None, weights=None)


def build_config(config: Json, form: str, whole: tuple[str, ...] = ()) -> Config:
    """The config with that format's ``quantization_config`` in place of its own."""
    plain = unquantised(split_quant(config)[0])
    try:
        inventory = inventory_of(plain)
    except KvplanError as error:
        if error.code not in NO_INVENTORY:
            raise
        return {**plain, "quantization_config": FORMS[form].config([])}
    ends = (*FORMS[form].whole, *whole)
    more = [path for path, _ in inventory.tensors() if ends and path.endswith(ends)]
    paths = dict.fromkeys((*spared(inventory, form), *_left_alone(config), *more))
    made = FORMS[form].config(list(paths))
    if FORMS[form].attention:
        made = _mixed(inventory, made, frozenset(paths), FORMS[form].attention)
    return {**plain, "quantization_config": made}


def _mixed(inventory: Inventory, one: Config, spared: frozenset[str], attention: str) -> Config:
    """ModelOpt's config of two formats: each matrix with its own, those left out as trained."""
    matrices = (
        (path, part_of(path, tensor.role))
        for path, tensor in inventory.tensors()
        if tensor.role in (Role.LINEAR, Role.EXPERT) and not path.endswith(".bias") and path not in spared
    )
    words = {path: attention if part is Part.ATTENTION else one["quant_algo"] for path, part in matrices}
    layers = {path: {"quant_algo": word, "group_size": 16} for path, word in words.items()}
    return {**one, "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}


def _left_alone(config: Json) -> list[str]:
    """The linear modules that a published quantised checkpoint leaves as trained: other builds leave them
    alone too."""
    raw, quant = split_quant(config)
    try:
        inventory = inventory_of(raw, hf_quant_config=quant)
    except KvplanError:
        return []
    if not inventory.quantisation:
        return []
    return [
        path
        for path, tensor in inventory.tensors()
        if tensor.role in (Role.LINEAR, Role.EXPERT) and tensor.form is None and not path.endswith(".bias")
    ]


def spared(inventory: Inventory, form: str) -> list[str]:
    """The linear modules that a build of that format leaves as trained; embeddings, the output head and norms
    are never quantised."""
    kinds = {tensor.role for _, tensor in inventory.tensors()}
    alone = FORMS[form].experts_only or (form in _GPTQ and _has_delta_net(inventory))
    experts = alone and Role.EXPERT in kinds
    paths: dict[str, None] = {}
    for path, tensor in inventory.tensors():
        if tensor.role in (Role.LINEAR, Role.EXPERT) and not path.endswith(".bias"):
            kept = TOWER_NAME.search(f"{path}.") or _SMALL.search(path)
            if kept or (experts and tensor.role is Role.LINEAR):
                paths[path] = None
    for block in inventory.draft:
        for tensor in block.tensors:
            if tensor.role in (Role.LINEAR, Role.EXPERT) and not tensor.name.endswith(".bias"):
                path = f"{block.path}.{tensor.name}"
                if form not in _WITH_MTP or _SMALL.search(path) or _JOINT.search(path):
                    paths[path] = None
    return list(paths)


_WITH_MTP = ("fp8", "auto-round")
"""Formats whose builds quantise multi-token-prediction layers, but for what joins the hidden states:
Qwen3.8-27B-FP8's files have 30,866,866,928 bytes. Elsewhere the layers stay in 16 bits: transformers'
classes, which quantisers work on, lack them, and they are copied (llm-compressor `ignore: re:.*mtp.*`,
ModelOpt `exclude_modules: mtp*`). vLLM printed 0.79 GiB more with MTP for RedHatAI's INT4 and Inferact's
NVFP4 of Qwen3.8-27B, 1.57 for RedHatAI's NVFP4 of Qwen3.6-35B-A3B."""


def _has_delta_net(inventory: Inventory) -> bool:
    """Of mixtures with linear attention Qwen's own GPTQ builds quantise the experts alone: starts of
    Qwen3.5-122B-A10B-GPTQ-Int4 print 68.36 GiB."""
    return any(one.name.startswith("linear_attn.") for block in inventory.layers for one in block.tensors)


_GPTQ = ("gptq", "gptq-int8")


def attention_more(model: Model) -> int:
    """Bytes that an NVFP4 build of a model with linear attention may have beyond what its name says, where
    its builder's way is not known: many hold attention in FP8 (of Qwen 3.8's 27B builds print 18.5, 22.1 and
    23.9 GiB)."""
    quant = (model.config or {}).get("quantization_config") or {}
    nvfp4 = "nvfp4" in f"{quant.get('quant_algo', '')} {quant.get('format', '')}".lower()
    states = any(part.kind is Kind.STATE for run in model.runs for part in run.layer.parts)
    return attention_saving(model) // 2 if nvfp4 and states else 0


def attention_saving(model: Model) -> int:
    """Bytes that quantisation saves in the matrices of attention against 16 bits, scales left out; 0 where
    the tensors are unknown."""
    try:
        inventory = inventory_of(model.config or {})
    except KvplanError:
        return 0
    return sum(
        2 * tensor.elements - ceil_div(tensor.elements * tensor.form.bits, 8)
        for path, tensor in inventory.tensors()
        if tensor.role is Role.LINEAR
        and tensor.form is not None
        and part_of(path, tensor.role) is Part.ATTENTION
    )
