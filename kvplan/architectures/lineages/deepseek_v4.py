"""DeepSeek-V4: windowed, compressed sparse (CSA) and heavily compressed (HCA) layers.

Sources: huggingface/transformers 5.23.0 models/deepseek_v4/configuration_deepseek_v4.py; vllm-project/vllm
0.32 vllm/models/deepseek_v4/.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.decoder import num_heads, window
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.hyper import hyper_connections
from kvplan.architectures.blocks.parts import (
    Tensors,
    even,
    experts,
    keyed,
    linear,
    mlp,
    norm,
    norms,
    router,
    unquantised,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import hidden_size
from kvplan.architectures.blocks.recipe import SLIDING, Parts, PartsOf, given_kinds, index_list, layers_of
from kvplan.architectures.config.custom_types import copy_of
from kvplan.architectures.config.view import ConfigView, check_integer, derived
from kvplan.architectures.prediction import Joins, Prediction, Project
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import CompressedAttention
from kvplan.model import Layer
from kvplan.weights.inventory import Dim, Place, Placed, Split

HCA, CSA = "heavily_compressed_attention", "compressed_sparse_attention"

_RATES = {CSA: 4, HCA: 128}

_OLD_RATES = {CSA: "compress_rate_csa", HCA: "compress_rate_hca"}

_KIND_OF_RATIO = {0: SLIDING, 4: CSA, 128: HCA}


def _rate(view: ConfigView, kind: str) -> int:
    """Tokens per compressed entry: compress_rate_csa / _hca, else compress_rates, else 4 and 128."""
    old = view.optional_integer(_OLD_RATES[kind])
    if old is not None:
        return old
    table = view.mapping("compress_rates")
    if table is None:
        return derived(_RATES[kind], "compress_rates (class default)")
    if kind not in table:
        raise view.refuse(f"compress_rates.{kind}", "is missing")
    return derived(check_integer(table[kind], f"{view.path}compress_rates.{kind}"), f"compress_rates.{kind}")


def _rope(view: ConfigView) -> int:
    """qk_rope_head_dim, a part of head_dim; else an eighth of it (partial_rotary_factor's default)."""
    given = view.optional_integer("qk_rope_head_dim", lowest=0, highest=view.integer("head_dim") - 1)
    return derived(view.integer("head_dim") // 8, "head_dim // 8") if given is None else given


def _part(kind: str | None) -> PartsOf:
    def parts(view: ConfigView) -> Parts:
        return (
            CompressedAttention(
                head_dim=view.integer("head_dim"),
                sliding_window=window(view),
                compress_rate=None if kind is None else _rate(view, kind),
                overlapping=kind == CSA,
                index_head_dim=view.integer("index_head_dim") if kind == CSA else None,
                qk_rope_head_dim=_rope(view),
            ),
        )

    return parts


_PARTS = {SLIDING: _part(None), HCA: _part(HCA), CSA: _part(CSA)}


def _pattern(view: ConfigView, count: int) -> list[str]:
    """compress_ratios (0, 4 or 128 a layer), else two HCA layers and then HCA and CSA in turn."""
    ratios = index_list(view, "compress_ratios")
    if ratios is None:
        return [CSA if index >= 2 and index % 2 else HCA for index in range(count)]
    unknown = [ratio for ratio in ratios if ratio not in _KIND_OF_RATIO]
    if unknown:
        raise view.refuse("compress_ratios", f"{unknown[0]} is none of 0, 4 and 128")
    if len(ratios) < count:
        raise view.refuse("compress_ratios", f"{len(ratios)} entries for {count} layers")
    return [_KIND_OF_RATIO[ratio] for ratio in ratios[:count]]


def deepseek_v4_layers(view: ConfigView) -> list[Layer]:
    """A list that is longer than the model (it counts draft layers) is cut."""
    count = view.num_layers()
    given = view.sequence("layer_types")
    if given is not None and len(given) > count:
        view = view.with_values({"layer_types": given[:count]})
    kinds = given_kinds(view, count, "layer_types") or _pattern(view, count)
    return layers_of(view, kinds, _PARTS)


SINKS = 64
"""The attention kernel's least number of query heads; sinks are padded to it."""


def _compressor(path: str, hidden: int, width: int, ratio: int) -> Tensors:
    """Key and gate projections of compressed attention, doubled by ratio 4's overlap. Never quantised."""
    wide = whole("head_dim × overlap", width * (2 if ratio == 4 else 1))
    model = whole("hidden_size", hidden)
    made = vector(f"{path}.ape", whole("compress ratio", ratio), wide, dtype="float32")
    made += unquantised(f"{path}.wkv", wide, model) + unquantised(f"{path}.wgate", wide, model)
    return made + norm(f"{path}.norm", whole("head_dim", width))


def _v4_attention(view: ConfigView, hidden: int, ratio: int) -> Tensors:
    heads, width = int(num_heads(view)), int(view.integer("head_dim"))
    groups, low = int(view.integer("o_groups")), int(view.integer("o_lora_rank"))
    model, rank = whole("hidden_size", hidden), keyed(view, "q_lora_rank")
    count, one = even("num_attention_heads", heads), whole("head_dim", width)
    made = vector("attn.attn_sink", Dim("num_attention_heads", heads, Split.EVEN, SINKS), dtype="float32")
    made += linear("attn.wq_a", rank, model) + linear("attn.wkv", one, model)
    made += norm("attn.q_norm", rank) + norm("attn.kv_norm", one)
    made += linear("attn.wq_b", (count, one), rank)
    out = (even("o_groups", groups), whole("o_lora_rank", low))
    made += linear("attn.wo_a", out, whole("heads of a group × head_dim", heads * width // groups))
    made += linear("attn.wo_b", model, out)
    if ratio > 1:
        made += _compressor("attn.compressor", hidden, width, ratio)
    if ratio == 4:
        number, narrow = int(view.integer("index_n_heads")), int(view.integer("index_head_dim"))
        rows = whole("index_n_heads × index_head_dim", number * narrow)
        made += linear("attn.indexer.wq_b", rows, rank)
        made += unquantised("attn.indexer.weights_proj", whole("index_n_heads", number), model)
        made += _compressor("attn.indexer.compressor", hidden, narrow, ratio)
    return made


def _v4_head(view: ConfigView) -> list[Placed]:
    streams = int(view.integer("hc_mult"))
    count = whole("hc_mult", streams)
    made = vector(
        "model.hc_head_fn",
        count,
        whole("hc_mult × hidden_size", streams * hidden_size(view)),
        dtype="float32",
    )
    made += vector("model.hc_head_base", count, dtype="float32")
    return at(Place.EVERY, made + vector("model.hc_head_scale", whole("one", 1), dtype="float32"))


def deepseek_v4_tensors(view: ConfigView) -> Decoder:
    """Hyper-connections, compressed attention by compress_ratios, hash routing in the first layers."""
    hidden, count = hidden_size(view), int(view.num_layers())
    ratios = view.sequence("compress_ratios")
    if ratios is None or len(ratios) < count:
        raise view.refuse("compress_ratios", "a list with one entry a layer is needed")
    hashed = int(view.optional_integer("num_hash_layers", default=0, lowest=0) or 0)
    number, width = int(view.integer("n_routed_experts")), int(view.integer("moe_intermediate_size"))
    streams = int(view.integer("hc_mult"))
    shared = int(view.optional_integer("n_shared_experts", default=0, lowest=0) or 0)

    @lru_cache(maxsize=64)
    def layer(ratio: int, by_hash: bool) -> Tensors:
        made = hyper_connections(streams, hidden) + _v4_attention(view, hidden, ratio)
        made += router(
            "ffn.gate", number, hidden, correction=None if by_hash else "ffn.gate.e_score_correction_bias"
        )
        if by_hash:
            table = (
                keyed(view, "vocab_size"),
                whole("experts per token", int(view.integer("num_experts_per_tok"))),
            )
            made += vector("ffn.gate.tid2eid", *table, dtype="int32")
        made += experts("ffn.experts", number, hidden, width)
        if shared:
            made += mlp("ffn.shared_experts", hidden, width * shared, split=Split.SHARED_EXPERT)
        return made + norms(("attn_norm", "ffn_norm"), whole("hidden_size", hidden))

    where = f"{view.path}compress_ratios"
    layers = tuple(
        layer(max(1, check_integer(ratios[index], where, 0)), index < hashed) for index in range(count)
    )
    return Decoder(Frame(extra=_v4_head), layers)


lineage(
    "deepseek_v4",
    layers=deepseek_v4_layers,
    tensors=deepseek_v4_tensors,
    prediction=Prediction(
        window_only=True,
        without=(".compressor.", ".indexer."),
        joins=Joins(
            ("enorm", "hnorm", "shared_head.norm"), ("e_proj", "h_proj"), Project.REPLICATED, streams=True
        ),
        path="mtp.{i}",
    ),
)
lineage(
    "deepseek_ref",
    reads=copy_of("deepseek_v4", "sgl-project/DeepSeek-V4-Pro-FP8 config.json (DeepseekV4ForCausalLM)"),
)
