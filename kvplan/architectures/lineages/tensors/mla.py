"""Multi-head latent attention: DeepSeek V2, V3, V3.2, Kimi K2, GLM with MLA, with and without indexer.

Source: vllm-project/vllm vllm/model_executor/models/deepseek_v2.py (0.32): low-rank projections are kept
whole on every rank, what goes to heads is divided; the indexer is kept whole.
"""

from __future__ import annotations

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.layers.decoder import num_heads
from kvplan.architectures.lineages.tensors.frame import Frame
from kvplan.architectures.lineages.tensors.moe import Moe, after_first, by_types_or, shared_by_count
from kvplan.architectures.lineages.tensors.parts import (
    LAYER,
    Tensors,
    attention,
    even,
    keyed,
    linear,
    mlp,
    norm,
    norms,
    vector,
    whole,
)
from kvplan.architectures.lineages.tensors.plain import TWO_NORMS, Plain, heads_of, hidden_size
from kvplan.architectures.lineages.tensors.registry import DECODERS, Decoder, decoder
from kvplan.weights.inventory import Split

INDEXED = ("deepseek_v32", "glm_moe_dsa")


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
    hidden, width = (
        whole("hidden_size", hidden_size(view)),
        keyed(view, "index_head_dim"),
    )
    heads, rank = (
        keyed(view, "index_n_heads"),
        keyed(view, "q_lora_rank"),
    )
    made = linear(f"{path}.wq_b", (heads, width), rank)
    made += vector(f"{path}.wk", width, hidden) + vector(f"{path}.weights_proj", heads, hidden)
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


def _moe(gate_dtype: str | None, always_corrected: bool) -> Moe:
    return Moe(
        count=("n_routed_experts",),
        layer_is_sparse=by_types_or(1) if always_corrected else after_first,
        gate_dtype=gate_dtype,
        correction="mlp.gate.e_score_correction_bias",
        correction_if=True if always_corrected else _corrected,
        shared=shared_by_count("n_shared_experts"),
        shared_split=Split.EVEN if always_corrected else Split.SHARED_EXPERT,
    )


DEEPSEEK_MOE, GLM_LITE_MOE = _moe(None, always_corrected=False), _moe("float32", always_corrected=True)


def _decoder(view: ConfigView, moe: Moe) -> Decoder:
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


@decoder("deepseek_v2", "deepseek_v3", "kimi_k2", "deepseek_v32", "glm_moe_dsa")
def deepseek(view: ConfigView) -> Decoder:
    """MLA, a dense start, then experts with a shared one."""
    return _decoder(view, DEEPSEEK_MOE)


@decoder("glm4_moe_lite")
def glm_lite(view: ConfigView) -> Decoder:
    """The same with GLM's router: float32 and always corrected."""
    return _decoder(view, GLM_LITE_MOE)


DECODERS["deepseek"] = Plain(moe=DEEPSEEK_MOE)
