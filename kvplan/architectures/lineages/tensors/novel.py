"""DeepSeek V4, Zamba2, MiniMax-Text-01 and MiniMax-M3: layouts that no other file has.

Source: vllm-project/vllm 0.32: vllm/models/deepseek_v4/, vllm/model_executor/models/zamba2.py,
vllm/models/minimax_m3/.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.lineages.layers.decoder import num_heads
from kvplan.architectures.lineages.tensors.frame import Frame, at
from kvplan.architectures.lineages.tensors.parts import (
    Tensors,
    attention,
    even,
    experts,
    keyed,
    linear,
    mlp,
    norm,
    norms,
    router,
    vector,
    whole,
)
from kvplan.architectures.lineages.tensors.plain import expansion, heads_of, hidden_size
from kvplan.architectures.lineages.tensors.registry import Decoder, decoder
from kvplan.architectures.lineages.tensors.state_space import Mamba2Sizes, mamba2
from kvplan.weights.inventory import Dim, Place, Placed, Split

SINKS = 64
"""The attention kernel's least number of query heads; sinks are padded to it."""


def _compressor(path: str, hidden: int, width: int, ratio: int) -> Tensors:
    """Key and gate projections of compressed attention, doubled by ratio 4's overlap. Never quantised."""
    wide = whole("head_dim × overlap", width * (2 if ratio == 4 else 1))
    model = whole("hidden_size", hidden)
    made = vector(f"{path}.ape", whole("compress ratio", ratio), wide, dtype="float32")
    made += vector(f"{path}.wkv", wide, model) + vector(f"{path}.wgate", wide, model)
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
        made += vector("attn.indexer.weights_proj", whole("index_n_heads", number), model)
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


@decoder("deepseek_v4")
def deepseek_v4(view: ConfigView) -> Decoder:
    """Hyper-connections, compressed attention by compress_ratios, hash routing in the first layers."""
    hidden, count = hidden_size(view), int(view.num_layers())
    ratios = view.sequence("compress_ratios")
    if ratios is None or len(ratios) < count:
        raise view.refuse("compress_ratios", "a list with one entry a layer is needed")
    hashed = int(view.optional_integer("num_hash_layers", default=0, lowest=0) or 0)
    number, width = int(view.integer("n_routed_experts")), int(view.integer("moe_intermediate_size"))
    streams = int(view.integer("hc_mult"))
    mixed, wide = (
        whole("(2 + hc_mult) × hc_mult", (2 + streams) * streams),
        whole("hc_mult × hidden_size", streams * hidden),
    )
    shared = int(view.optional_integer("n_shared_experts", default=0, lowest=0) or 0)

    @lru_cache(maxsize=64)
    def layer(ratio: int, by_hash: bool) -> Tensors:
        made: Tensors = ()
        for part in ("attn", "ffn"):
            made += vector(f"hc_{part}_fn", mixed, wide, dtype="float32")
            made += vector(f"hc_{part}_base", mixed, dtype="float32")
            made += vector(f"hc_{part}_scale", whole("three", 3), dtype="float32")
        made += _v4_attention(view, hidden, ratio)
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


@decoder("zamba2")
def zamba2(view: ConfigView) -> Decoder:
    """Mamba-2 layers; hybrid ones also lead through one of num_mem_blocks shared attention blocks."""
    hidden, count = hidden_size(view), int(view.num_layers())
    words = [str(word) for word in view.sequence("layers_block_type", "layer_types") or ()]
    if len(words) != count:
        raise view.refuse("layers_block_type", f"{len(words)} entries for {count} layers")
    model = whole("hidden_size", hidden)
    inner = int(expansion(view, "mamba_expand") * hidden)
    heads = int(view.integer("n_mamba_heads"))
    sizes = Mamba2Sizes(
        hidden=hidden,
        inner=inner,
        heads=heads,
        groups=int(view.integer("mamba_ngroups")),
        state=int(view.integer("mamba_d_state")),
        kernel=int(view.integer("mamba_d_conv")),
        bias=view.flag("add_bias_linear"),
        conv_bias=view.flag("use_conv_bias", default=True),
    )
    plain = mamba2("mamba", sizes) + norm("input_layernorm", model)
    hybrid = linear("linear", model, model)
    hybrid += mamba2("mamba_decoder.mamba", sizes) + norm("mamba_decoder.input_layernorm", model)
    mixed = ("hybrid", "hybrid_attention", "hybrid_mamba")
    layers = tuple(hybrid if word in mixed else plain for word in words)
    hybrids = sum(word in mixed for word in words)
    frame = Frame(
        final_norm="model.final_layernorm",
        everywhere=True,
        extra=lambda seen: _zamba2_shared(seen, hidden, hybrids),
    )
    return Decoder(frame, layers)


def _zamba2_shared(view: ConfigView, hidden: int, hybrids: int) -> list[Placed]:
    """The shared blocks, each counted once, and an adapter of its own for every hybrid layer."""
    blocks = int(view.optional_integer("num_mem_blocks") or 1)
    wide = int(view.optional_integer("attention_hidden_size") or 2 * hidden)
    heads, width = (
        int(num_heads(view)),
        int(view.optional_integer("attention_head_dim") or wide // int(num_heads(view))),
    )
    inner, rank = int(view.integer("intermediate_size")), int(view.integer("adapter_rank"))
    low, bias = even("adapter_rank", rank), view.flag("add_bias_linear")
    made: Tensors = ()
    for block in range(blocks):
        path = f"model.shared_transformer.{block}"
        both, into = (
            (even("num_attention_heads", heads), whole("attention_head_dim", width)),
            whole("attention_hidden_size", wide),
        )
        for name in ("q_proj", "k_proj", "v_proj"):
            made += linear(f"{path}.self_attn.{name}", both, into)
        made += linear(f"{path}.self_attn.o_proj", whole("hidden_size", hidden), both)
        names = ("gate_up_proj", "gate_up_proj", "down_proj")
        made += mlp(f"{path}.feed_forward", hidden, inner, bias=bias, names=names)
        made += norm(f"{path}.input_layernorm", into) + norm(
            f"{path}.pre_ff_layernorm", whole("hidden_size", hidden)
        )
    for index in range(hybrids):
        wider = (whole("gate and up", 2), even("intermediate_size", inner))
        adapters = [("feed_forward.gate_up_proj_adapter_list", hidden, wider)]
        if view.flag("use_shared_attention_adapter"):
            out_of = (whole("one", 1), even("attention_hidden_size", wide))
            adapters += [(f"self_attn.linear_{name}_adapter_list", wide, out_of) for name in "qkv"]
        for name, into_width, out in adapters:
            made += linear(f"model.{name}.{index}.A", low, whole("input width", into_width))
            made += linear(f"model.{name}.{index}.B", out, whole("adapter_rank", rank))
    return at(Place.EVERY, made)


@decoder("minimax_text_01", "minimax_m1")
def minimax_text(view: ConfigView) -> Decoder:
    """attn_type_list: 0 lightning attention with an output gate and a norm, 1 softmax attention; experts."""
    hidden, count = hidden_size(view), int(view.num_layers())
    kinds = view.sequence("attn_type_list")
    if kinds is None or len(kinds) != count:
        raise view.refuse("attn_type_list", "a list with one entry a layer is needed")
    heads = heads_of(view)
    model, wide = (
        whole("hidden_size", hidden),
        (even("num_attention_heads", heads.count), whole("head_dim", heads.width)),
    )
    lightning = linear("self_attn.qkv_proj", (whole("query, key and value", 3), *wide), model)
    lightning += linear("self_attn.output_gate", wide, model) + norm("self_attn.norm", *wide)
    lightning += linear("self_attn.out_proj", model, wide)
    number, width = int(view.integer("num_local_experts")), int(view.integer("intermediate_size"))
    forward = router("block_sparse_moe.gate", number, hidden)
    forward += experts("block_sparse_moe.experts", number, hidden, width)
    shared = int(view.optional_integer("shared_intermediate_size", default=0, lowest=0) or 0)
    if shared:
        forward += mlp("shared_mlp", hidden, shared) + linear("coefficient", whole("one", 1), model)
    around = norms(("input_layernorm", "post_attention_layernorm"), model)
    mixers = {0: lightning, 1: attention(heads, hidden)}
    where = f"{view.path}attn_type_list"
    return Decoder(
        Frame(), tuple(mixers[check_integer(kind, where, 0, 1)] + forward + around for kind in kinds)
    )


@decoder("minicpm")
def minicpm(view: ConfigView) -> Decoder:
    """A Llama decoder, or one with experts as wide as intermediate_size."""
    hidden = hidden_size(view)
    number, width = (
        int(view.optional_integer("num_experts", default=0, lowest=0) or 0),
        int(view.integer("intermediate_size")),
    )
    forward = mlp("mlp", hidden, width)
    if number:
        forward = router("mlp.gate", number, hidden) + experts("mlp.experts", number, hidden, width)
    layer = attention(heads_of(view), hidden) + forward
    layer += norms(("input_layernorm", "post_attention_layernorm"), whole("hidden_size", hidden))
    return Decoder(Frame(), (layer,) * int(view.num_layers()))
