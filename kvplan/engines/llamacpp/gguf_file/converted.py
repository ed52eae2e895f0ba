"""The tensors of the GGUF file that llama.cpp's converter makes of a checkpoint, by its config.

ggml-org/llama.cpp conversion/base.py and ``modify_tensors`` of granite.py, baichuan.py, chatglm.py,
internlm.py, qwen.py and deepseek.py; names: gguf-py/gguf/tensor_mapping.py (data/gguf_names.tsv, by
scripts/make_gguf_names.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from math import prod
from pathlib import Path

from kvplan.dtypes import FLOAT16, FLOAT32
from kvplan.engines.base import has_kind
from kvplan.engines.llamacpp.gguf_file.ggml_types import row_bytes
from kvplan.engines.llamacpp.gguf_file.quantise import GgufTensor, Hyper, Told, types_of
from kvplan.errors import RefusedError
from kvplan.families import Kind
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import Json, record, replace
from kvplan.weights.inventory import Inventory, Role, Tensor
from kvplan.weights.parts import TOWER_NAME

NAMES = Path(__file__).parents[1] / "data" / "gguf_names.tsv"
HEADER = "module\ttensor\tarchitectures"
_EXPERTS = regex(r"\.experts\.(gate_proj|up_proj|down_proj|gate_up_proj|w1|w2|w3)$")
_EXPERT_NAMES = {
    "gate_proj": "ffn_gate_exps", "w1": "ffn_gate_exps", "up_proj": "ffn_up_exps", "w3": "ffn_up_exps",
    "down_proj": "ffn_down_exps", "w2": "ffn_down_exps", "gate_up_proj": "ffn_gate_up_exps",
}  # fmt: skip
_QKV = ("attn_q", "attn_k", "attn_v")
_IN_TURN: dict[str, tuple[str, ...]] = {
    "self_attn.W_pack": _QKV,
    "attention.wqkv": _QKV,
    "linear_attn.in_proj_qkvz": ("attn_qkv", "attn_qkv", "attn_gate"),
}
"""A module that is taken apart: the tensor of each of its parts, as the inventory lists them."""
_HALVES: dict[str, tuple[str, ...]] = {
    "shared_mlp.input_linear": ("ffn_gate", "ffn_up"),
    "shared_mlp.output_linear": ("ffn_down",),
}
"""Granite's perceptron beside the experts, or the only one: gate and up in one matrix."""
_PREDICTION = {
    "fc": "eh_proj",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
    "norm": "shared_head.norm",
}
"""Tensors of Qwen's prediction layers outside a layer → their place after the converter
(``_Qwen35MtpMixin``)."""

_HALF = "input_projection_weight"
"""The end of a matrix's path that its checkpoint has without ``.weight`` (conversion/gemma.py)."""
_LAYER = regex(r"\.(\d{1,5})\.")
_LATENT = "kv_b_proj"
_VALUE = "self_attn.v_proj"
_SIXTEEN = ("per_layer_model_proj", "laurel_", "altup_router")
"""Matrices that the quantiser leaves as the converter wrote them, in 16 bits (conversion/base.py has others
of that kind in float32)."""
_LIKE_70B = ("llama", "qwen2", "deci", "nemotron-nas")
SEVENTY = 80
"""Layers of what llama.cpp calls 70B (src/models: LLM_TYPE_70B)."""
_MADE_WHOLE = ("fp8", "compressed-tensors", "gptq")
"""Methods whose matrices the converter dequantises (conversion/base.py, ``dequant_model``)."""
_KEPT = {"gpt_oss": "mxfp4"}
"""Model type → the type in which its experts are stored and stay (conversion/gpt_oss.py): ``llama-quantize``
refuses to change it."""
WITH_PREDICTION = frozenset(
    "glm4_moe glm4v_moe_text glm4_moe_lite glm_moe_dsa qwen3_5_text qwen3_5_moe_text".split()
)
"""Types whose prediction layers the converter writes unless told ``--no-mtp`` (conversion/glm.py, qwen.py);
those of the others it leaves out."""


@record()
class Converted:
    """The file's tensors that are loaded: name → bytes. prediction: bytes of the layers of the file that are
    read only where a draft is made of them (``load_mtp``). encoder: bytes of the mmproj file."""

    bytes_by_name: Mapping[str, int]
    prediction: int
    encoder: int


def converted(
    model: Model, inventory: Inventory, mixture: str, *, told: Told = (), with_mtp: bool = True
) -> Converted:
    """Name → bytes of a build of that mixture. told: types of tensors that its author sets.
    with_mtp False: of a file made with ``--no-mtp``.

    Raises RefusedError(no-weights): a matrix that the converter's table does not name, a checkpoint in a
    format that the converter does not read."""
    stored = inventory.quantisation
    if stored and stored not in _MADE_WHOLE and model.model_type not in _KEPT:
        raise RefusedError(
            "no-weights",
            f"{model.id} is stored as {stored}, of which llama.cpp's converter makes no other types",
            help=("name the checkpoint that is not quantised", "give the .gguf file", "--weights 15GiB"),
        )
    tensors, encoder = tensors_of(model, inventory, with_mtp=with_mtp)
    kinds = types_of(tensors, mixture, hyper_of(model, inventory, tensors), told)
    sizes: dict[str, int] = {}
    prediction = 0
    for tensor, kind in zip(tensors, kinds):
        size = row_bytes(kind, tensor.columns) * tensor.rows
        if tensor.layer is not None and tensor.layer >= len(inventory.layers):
            prediction += size
        else:
            sizes[tensor.name] = size
    return Converted(sizes, prediction, encoder)


def hyper_of(model: Model, inventory: Inventory, tensors: Sequence[GgufTensor]) -> Hyper:
    """The model's hyperparameters that decide types."""
    heads = model.num_attention_heads
    shared = [
        int(getattr(part, "num_kv_heads", 0) or 0) for layer in model.distinct() for part in layer.parts
    ]
    kv_heads = 1 if has_kind(model, Kind.MLA) else max(shared, default=0)
    name = model.model_type.replace("_", "-")
    layers = 1 + max((tensor.layer for tensor in tensors if tensor.layer is not None), default=-1)
    full = heads == kv_heads
    return Hyper(
        layers,
        max(
            (prod(dim.value for dim in tensor.stack) for _, tensor in inventory.tensors() if tensor.stack),
            default=0,
        ),
        heads // kv_heads if heads and kv_heads else 1,
        is_falcon=name in ("falcon", "refinedweb", "refinedwebmodel"),
        is_70b=layers == SEVENTY and name in _LIKE_70B and not (name == "llama" and full),
    )


def _text(model: Model) -> Json:
    """The config's keys, those of its text part before the others."""
    raw: Json = model.config or {}
    text = raw.get("text_config")
    return {**raw, **text} if isinstance(text, Mapping) else raw


@lru_cache(maxsize=16)
def tensors_of(
    model: Model, inventory: Inventory, *, with_mtp: bool = True
) -> tuple[Sequence[GgufTensor], int]:
    """The tensors in the order of their layers, and the bytes of the encoder of images, which goes to a file
    of its own: matrices in 16 bits, the rest in 32 (conversion/base.py, MmprojModel)."""
    found: dict[str, GgufTensor] = {}
    sparse = any(tensor.role is Role.EXPERT for block in inventory.layers for tensor in block.tensors)
    encoder = 0
    for tensors, beside in _parts(model, inventory, sparse, with_mtp):
        encoder += beside
        for one in tensors:
            found[one.name] = _joined(found.get(one.name), one)
    for one in (*_factors(model), *_unread(model, found)):
        found[one.name] = one
    return tuple(sorted(found.values(), key=lambda one: -1 if one.layer is None else one.layer)), encoder


def _parts(
    model: Model, inventory: Inventory, sparse: bool, with_mtp: bool
) -> Iterator[tuple[Sequence[GgufTensor], int]]:
    """The tensors outside the layers, of each layer and of the prediction layers, with the bytes of an
    encoder among them. Layers that are alike but for their number are converted once."""
    yield _of_part(model, ((name, one.tensor) for one in inventory.ends for name in one.names()), sparse)
    known: dict[tuple[str, tuple[Tensor, ...]], tuple[list[GgufTensor], int]] = {}
    for block in inventory.layers:
        path = block.path
        number = _LAYER.search(f"{path}.")
        named = ((f"{path}.{tensor.name}", tensor) for tensor in block.tensors)
        if number is None:
            yield _of_part(model, named, sparse)
            continue
        like = f"{path[: number.start(1)]}{_NUMBER}{path[number.end(1) :]}"
        if (like, block.tensors) not in known:
            known[like, block.tensors] = _of_part(model, named, sparse, (number.start(1), number.end(1)))
        tensors, beside = known[like, block.tensors]
        yield [_of_layer(one, number[1]) for one in tensors], beside
    if with_mtp:
        yield _of_part(model, _prediction(model, inventory), sparse)


_NUMBER = "\0"
"""Stands for a layer's number in the names of tensors that every layer like it has."""


def _of_layer(tensor: GgufTensor, number: str) -> GgufTensor:
    name = tensor.name.replace(_NUMBER, number)
    return GgufTensor(name, tensor.columns, tensor.rows, tensor.dimensions, int(number), tensor.kept)


def _of_part(
    model: Model, named: Iterable[tuple[str, Tensor]], sparse: bool, number: tuple[int, int] | None = None
) -> tuple[list[GgufTensor], int]:
    """The tensors, and the bytes of an encoder among them. number: where in the names the layer's number
    stands, for which `_NUMBER` is written."""
    found: list[GgufTensor] = []
    encoder = 0
    parts: Counter[str] = Counter()
    for name, tensor in named:
        if TOWER_NAME.search(f"{name}."):
            whole = tensor.columns or name.endswith(_HALF)
            encoder += tensor.elements * (FLOAT16.bytes if whole else FLOAT32.bytes)
            continue
        own = _LAYER.search(name)
        layer, shown = (own[1] if own else None), name
        if number is not None:
            layer, shown = _NUMBER, f"{name[: number[0]]}{_NUMBER}{name[number[1] :]}"
        prefix = "" if layer is None else f"blk.{layer}."
        for word, columns, rows, dimensions, kept in _converted(model, name, tensor, sparse, parts[name]):
            place = None if own is None else int(own[1])
            found.append(GgufTensor(f"{prefix}{word or shown}", columns, rows, dimensions, place, kept))
        parts[name] += 1
    return found, encoder


def _prediction(model: Model, inventory: Inventory) -> Iterator[tuple[str, Tensor]]:
    """The tensors of the prediction layers under the names that they have in the file, where it has them."""
    if model.model_type not in WITH_PREDICTION:
        return
    for block in inventory.draft:
        for tensor in block.tensors:
            yield predicted(f"{block.path}.{tensor.name}", len(inventory.layers)), tensor


def _joined(first: GgufTensor | None, other: GgufTensor) -> GgufTensor:
    """Parts of a fused matrix (Q, K and V of Phi-3) are one tensor, a vector's numbers one row."""
    if first is None:
        return other
    if not first.name.endswith(".weight"):
        return replace(first, columns=first.columns + other.columns)
    rows = first.rows + other.rows
    return replace(first, rows=rows, dimensions=max(first.dimensions, other.dimensions, 2))


def _converted(
    model: Model, name: str, tensor: Tensor, sparse: bool, part: int
) -> Iterator[tuple[str, int, int, int, str]]:
    """Name in its layer, columns, rows, dimensions and kept type of what a tensor becomes. A vector, which
    is float32, has no name but its own, and none here."""
    columns, stack = prod(dim.value for dim in tensor.columns), prod(dim.value for dim in tensor.stack)
    rows = prod(dim.value for dim in tensor.rows)
    if not rows * stack or (tensor.columns and not columns):
        return
    if name.endswith(_VALUE) and _has_no_value(model, name):
        return
    if not tensor.columns:
        yield "", rows, stack, 1 if stack == 1 else 2, ""
        return
    if name.endswith(_LATENT):
        yield from _latent(model, rows, columns)
        return
    words = names_of(name, model.model_type, sparse=sparse, part=part)
    if not words:
        raise RefusedError(
            "no-weights",
            f"how llama.cpp's converter names {name} of {model.id} is not known",
            help=("give the .gguf file", "--weights 15GiB"),
        )
    kept = _KEPT.get(model.model_type, "") if tensor.form is not None else ""
    for word in words:
        high = rows // len(words)
        own = kept or ("f16" if word.startswith(_SIXTEEN) else "")
        yield f"{word}.weight", columns, stack * high, _dimensions(high, stack), own


def _unread(model: Model, found: Mapping[str, GgufTensor]) -> list[GgufTensor]:
    """K and V of Gemma's layers that read another's cache: checkpoint and file have them, and they are loaded
    (src/models/gemma4.cpp, gemma3n.cpp), though no graph reads them."""
    count = _text(model).get("num_kv_shared_layers")
    if not model.model_type.startswith(("gemma4", "gemma3n")) or not isinstance(count, int):
        return []
    layers, more = model.num_layers, []
    for layer in range(max(layers - count, 0), layers):
        query = found.get(f"blk.{layer}.attn_q.weight")
        like = next(
            (one for one in range(layer) if query and _same(found.get(f"blk.{one}.attn_q.weight"), query)),
            None,
        )
        for name in ("attn_k", "attn_v"):
            own = None if like is None else found.get(f"blk.{like}.{name}.weight")
            if own is not None:
                more.append(replace(own, name=f"blk.{layer}.{name}.weight", layer=layer))
    return more


def _same(one: GgufTensor | None, other: GgufTensor) -> bool:
    return one is not None and (one.columns, one.rows) == (other.columns, other.rows)


def _has_no_value(model: Model, name: str) -> bool:
    """Whether the layer's values are its keys, of which the checkpoint has one matrix (Gemma 4's full layers
    with ``attention_k_eq_v``; src/models/gemma4.cpp: v_proj is optional). An engine that fuses Q, K and V
    loads it twice."""
    if not model.model_type.startswith("gemma4") or _text(model).get("attention_k_eq_v", True) is not True:
        return False
    number = _LAYER.search(name)
    layer = model.layers()[int(number[1])] if number is not None else None
    return layer is not None and any(part.kind is Kind.FULL for part in layer.parts)


def _dimensions(rows: int, stack: int) -> int:
    """Those up to the last that is not of size one (``ggml_n_dims``)."""
    return 3 if stack > 1 else 2 if rows > 1 else 1


def _latent(model: Model, rows: int, columns: int) -> Iterator[tuple[str, int, int, int, str]]:
    """kv_b_proj, (heads × (nope + v)) × rank: attn_k_b (heads, rank, nope) and attn_v_b (heads, v, rank)."""
    raw = _text(model)
    nope, value, heads = (raw.get(key) for key in ("qk_nope_head_dim", "v_head_dim", "num_attention_heads"))
    if (
        not (isinstance(nope, int) and isinstance(value, int) and isinstance(heads, int))
        or heads * (nope + value) != rows
    ):
        raise RefusedError("no-weights", f"kv_b_proj of {model.id} has another shape than its heads")
    yield "attn_k_b.weight", nope, heads * columns, 3, ""
    yield "attn_v_b.weight", columns, heads * value, 3, ""


def _factors(model: Model) -> list[GgufTensor]:
    """Rotary factors that the converter computes (conversion/llama.py, phi.py): half a head each."""
    raw = _text(model)
    scaling = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type")) if isinstance(scaling, Mapping) else None
    long = scaling.get("long_factor") if isinstance(scaling, Mapping) else None
    if kind == "llama3":
        heads = model.num_attention_heads
        width = raw.get("head_dim") or (model.hidden_size // heads if heads else 0)
        return [GgufTensor("rope_freqs.weight", int(width) // 2, 1, 1)] if width else []
    if isinstance(long, list) and long:
        return [GgufTensor(f"rope_factors_{word}.weight", len(long), 1, 1) for word in ("long", "short")]
    return []


@cache
def _table() -> tuple[Mapping[str, str], Mapping[tuple[str, str], str]]:
    """Module → tensor, and (module, architecture) → tensor where it is another."""
    header, *lines = NAMES.read_text(encoding="utf-8").splitlines()
    assert header == HEADER
    usual: dict[str, str] = {}
    own: dict[tuple[str, str], str] = {}
    for line in lines:
        module, tensor, architectures = line.split("\t")
        if not architectures:
            usual[module] = tensor
        for one in filter(None, architectures.split(",")):
            own[module, _plain(one)] = tensor
    return usual, own


def _plain(word: str) -> str:
    """An architecture's name beside a model type: ``falcon-h1``, ``falcon_h1``; ``llama4_text``."""
    return word.replace("-", "").replace("_", "").removesuffix("text")


def names_of(path: str, model_type: str, *, sparse: bool, part: int = 0) -> tuple[str, ...]:
    """The tensors that a matrix becomes, without ``blk.N.``: more than one where it is cut into equal pieces
    along its rows; empty where the converter's names do not have it.

    part: how many parts of this module came before. sparse: whether the model has routed experts."""
    plain = path.removesuffix(".weight").removeprefix("transformer." if "chatglm" in model_type else "\0")
    for module, names in _IN_TURN.items():
        if plain.endswith(module):
            return (names[min(part, len(names) - 1)],)
    for module, names in _HALVES.items():
        if plain.endswith(module):
            return tuple(f"{name}_shexp" if sparse else name for name in names)
    pattern = _LAYER.sub(".{bid}.", plain, count=1)
    usual, own = _table()
    found = own.get((pattern, _plain(model_type))) or usual.get(pattern)
    if found is not None:
        return (found,)
    experts = _EXPERTS.search(plain)
    return (_EXPERT_NAMES[experts[1]],) if experts is not None else ()


def predicted(path: str, layers: int) -> str:
    """Where a prediction layer's tensor stands in the file: behind the model's own layers."""
    words = path.removeprefix("model.").split(".")
    if words[0] != "mtp":
        return path
    if words[1] == "layers":
        return f"model.layers.{layers + int(words[2])}.{'.'.join(words[3:])}"
    return f"model.layers.{layers}.{_PREDICTION.get('.'.join(words[1:]), '.'.join(words[1:]))}"
