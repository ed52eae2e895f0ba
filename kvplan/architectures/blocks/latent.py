"""Latent attention (MLA), with a token indexer (DSA) or windows: what it keeps and which tensors it has.

Sources: huggingface/transformers 5.23.0 models/{deepseek_v2,deepseek_v3,deepseek_v32}; vllm-project/vllm
0.32 vllm/model_executor/models/deepseek_v2.py: low-rank projections are kept whole on every rank, what goes
to heads is divided; the indexer is kept whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvplan.architectures.blocks.decoder import STRAY, num_heads, stray_window, window
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import Moe, after_first, by_types_or, shared_by_count
from kvplan.architectures.blocks.parts import (
    LAYER,
    Tensors,
    attention,
    even,
    keyed,
    linear,
    mlp,
    norm,
    norms,
    unquantised,
    whole,
)
from kvplan.architectures.blocks.plain import BIAS, TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import FULL, INDEXED, SLIDING, Parts, nothing
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder
from kvplan.families import MultiHeadLatentAttention, SparseIndexer
from kvplan.record import replace
from kvplan.weights.inventory import Split


def mla(
    view: ConfigView, sliding_window: int | None = None, library_window: int | None = None
) -> MultiHeadLatentAttention:
    """kv_lora_rank + qk_rope_head_dim; heads and widths serve the expanded layout of older releases."""
    return MultiHeadLatentAttention(
        kv_lora_rank=view.integer("kv_lora_rank"),
        qk_rope_head_dim=view.integer("qk_rope_head_dim", lowest=0),
        num_heads=num_heads(view),
        qk_nope_head_dim=view.optional_integer("qk_nope_head_dim", default=0, lowest=0) or 0,
        v_head_dim=view.optional_integer("v_head_dim", default=0, lowest=0) or 0,
        sliding_window=sliding_window,
        library_window=library_window,
    )


def latent(view: ConfigView) -> Parts:
    return (mla(view),)


def sliding_latent(view: ConfigView) -> Parts:
    return (mla(view, window(view)),)


def stray_latent(view: ConfigView) -> Parts:
    return (mla(view, library_window=stray_window(view)),)


def indexed_latent(view: ConfigView) -> Parts:
    return (mla(view), SparseIndexer(view.integer("index_head_dim")))


MLA = {FULL: latent, STRAY: stray_latent, SLIDING: sliding_latent, "moe": nothing, "mlp": nothing}

DSA = {**MLA, INDEXED: indexed_latent}


def indexer_types(view: ConfigView, count: int) -> list[str]:
    """ "full" (the layer has an indexer) or "shared" (it uses the one of an earlier layer).

    ``indexer_types``, else ``index_topk_pattern`` ("FSS…" or a list), else every index_topk_freq-th layer
    from index_skip_topk_offset - 1 on (models/glm_moe_dsa/configuration_glm_moe_dsa.py).
    """
    given = view.sequence("indexer_types")
    if given is not None:
        return _checked(view, "indexer_types", given, count)
    pattern = view.get("index_topk_pattern")
    if pattern is not None:
        words = {"F": "full", "S": "shared"}
        listed = [words.get(letter, letter) for letter in pattern] if isinstance(pattern, str) else None
        return _checked(
            view, "index_topk_pattern", listed or view.sequence("index_topk_pattern") or [], count
        )
    frequency = max(view.optional_integer("index_topk_freq", default=1, lowest=0) or 1, 1)
    offset = view.optional_integer("index_skip_topk_offset", default=2, lowest=0)
    first = 2 if offset is None else offset
    return ["shared" if max(index - first + 1, 0) % frequency else "full" for index in range(count)]


def _checked(view: ConfigView, key: str, words: Sequence[object], count: int) -> list[str]:
    unknown = [word for word in words if word not in ("full", "shared")]
    if unknown:
        raise view.refuse(key, f"{str(unknown[0])[:40]!r} is neither full nor shared")
    if len(words) < count:
        raise view.refuse(key, f"{len(words)} entries for {count} layers")
    return [str(word) for word in words[:count]]


def without_indexer(view: ConfigView, kinds: list[str], types: list[str]) -> Mapping[int, Parts]:
    """The indexed layers that use another layer's indexer."""
    plain = latent(view)
    return {i: plain for i, kind in enumerate(kinds) if kind == INDEXED and types[i] == "shared"}


def mla_attention(
    view: ConfigView, *, gate: bool = False, bias: bool = False, path: str = "self_attn"
) -> Tensors:
    """Query through q_lora_rank where there is one, key and value through kv_lora_rank.

    bias: of the low-rank and the output projection. gate: an output gate as wide as the values.
    """
    hidden, heads = whole("hidden_size", hidden_size(view)), even("num_attention_heads", int(num_heads(view)))
    nope, rope = view.integer("qk_nope_head_dim", lowest=0), view.integer("qk_rope_head_dim", lowest=0)
    value = keyed(view, "v_head_dim")
    latent = keyed(view, "kv_lora_rank")
    query = (heads, whole("qk_nope_head_dim + qk_rope_head_dim", nope + rope))
    low = view.optional_integer("q_lora_rank", lowest=0)
    if low:
        rank = whole("q_lora_rank", int(low))
        made = linear(f"{path}.q_a_proj", rank, hidden, bias=bias) + norm(f"{path}.q_a_layernorm", rank)
        made += linear(f"{path}.q_b_proj", query, rank)
    else:
        made = linear(f"{path}.q_proj", query, hidden)
    joint = whole("kv_lora_rank + qk_rope_head_dim", latent.value + rope)
    made += linear(f"{path}.kv_a_proj_with_mqa", joint, hidden, bias=bias)
    made += norm(f"{path}.kv_a_layernorm", latent)
    both = whole("qk_nope_head_dim + v_head_dim", nope + value.value)
    made += linear(f"{path}.kv_b_proj", (heads, both), latent)
    if gate:
        made += linear(f"{path}.g_proj", (heads, value), hidden)
    return made + linear(f"{path}.o_proj", hidden, (heads, value), bias=bias)


def indexer(view: ConfigView, path: str = "self_attn.indexer") -> Tensors:
    """The lightning indexer, whole on every rank; its key projection is never quantised."""
    hidden, width = (whole("hidden_size", hidden_size(view)), keyed(view, "index_head_dim"))
    heads, rank = (keyed(view, "index_n_heads"), keyed(view, "q_lora_rank"))
    made = linear(f"{path}.wq_b", (heads, width), rank)
    made += unquantised(f"{path}.wk", width, hidden) + unquantised(f"{path}.weights_proj", heads, hidden)
    return made + norm(f"{path}.k_norm", width, kind=LAYER, dtype="float32")


def layer_has_indexer(view: ConfigView, index: int) -> bool:
    """Which layers choose tokens themselves: index_topk_pattern, else one in index_topk_freq."""
    if view.get("index_topk") is None:
        return False
    pattern = view.get("index_topk_pattern")
    if isinstance(pattern, str):
        return index >= len(pattern) or pattern[index] != "S"
    every = view.optional_integer("index_topk_freq", default=1) or 1
    offset = view.optional_integer("index_skip_topk_offset", default=2, lowest=0)
    start = 2 if offset is None else int(offset)
    return bool(max(index - start + 1, 0) % int(every) == 0)


def _corrected(view: ConfigView) -> bool:
    return view.word("topk_method") == "noaux_tc"


def latent_moe(gate_dtype: str | None, always_corrected: bool) -> Moe:
    return Moe(
        count=("n_routed_experts",),
        layer_is_sparse=by_types_or(1) if always_corrected else after_first,
        gate_dtype=gate_dtype,
        correction="mlp.gate.e_score_correction_bias",
        correction_if=True if always_corrected else _corrected,
        shared=shared_by_count("n_shared_experts"),
        shared_split=Split.EVEN if always_corrected else Split.SHARED_EXPERT,
    )


DEEPSEEK_MOE, GLM_LITE_MOE = (
    latent_moe(None, always_corrected=False),
    latent_moe("float32", always_corrected=True),
)


def latent_decoder(view: ConfigView, moe: Moe) -> Decoder:
    hidden = hidden_size(view)
    around = norms(TWO_NORMS, whole("hidden_size", hidden))
    count = int(view.num_layers())
    uses_mla = bool(view.get("qk_nope_head_dim") or view.get("qk_rope_head_dim"))
    made: dict[tuple[bool, bool], Tensors] = {}
    layers = []
    for index in range(count):
        kind = (moe.layer_is_sparse(view, index), layer_has_indexer(view, index))
        if kind not in made:
            mixer = mla_attention(view) if uses_mla else attention(heads_of(view), hidden)
            made[kind] = (
                mixer
                + (indexer(view) if kind[1] else ())
                + (
                    moe.tensors(view)
                    if kind[0]
                    else mlp("mlp", hidden, int(view.integer("intermediate_size")))
                )
                + around
            )
        layers.append(made[kind])
    return Decoder(Frame(), tuple(layers))


def deepseek_tensors(view: ConfigView) -> Decoder:
    """MLA, a dense start, then experts with a shared one."""
    return latent_decoder(view, DEEPSEEK_MOE)


ROUTED = Moe(
    count=("n_routed_experts", "num_experts"),
    layer_is_sparse=by_types_or(1),
    correction="mlp.gate.e_score_correction_bias",
    shared=shared_by_count("n_shared_experts", "num_shared_experts"),
)


def dense_forward(view: ConfigView, *, bias: bool = False) -> Tensors:
    return mlp("mlp", hidden_size(view), int(view.integer("intermediate_size")), bias=bias)


def routed_forward(view: ConfigView, *, sparse: bool) -> Tensors:
    return ROUTED.tensors(view) if sparse else dense_forward(view)


def both_norms(view: ConfigView) -> Tensors:
    return norms(TWO_NORMS, whole("hidden_size", hidden_size(view)))


def dense_mla_tensors(view: ConfigView) -> Decoder:
    """Latent attention and a perceptron in every layer."""
    layer = mla_attention(view, bias=view.flag(BIAS)) + both_norms(view)
    layer += dense_forward(view, bias=view.flag("mlp_bias"))
    return Decoder(Frame(), (layer,) * int(view.num_layers()))


PLAIN_ROUTED = replace(ROUTED, layer_is_sparse=by_types_or(0), correction="")


def routed_here(view: ConfigView, index: int) -> bool:
    return ROUTED.layer_is_sparse(view, index)
