"""GLM-5.3-Flash: Kimi delta attention, latent attention with a pooled indexer between, hyper-connections.

Sources: huggingface/transformers 5.23.0 models/glm5_next; vllm-project/vllm 0.32 vllm/models/glm5next/common/
(model.py, attention.py, kda.py, mtp.py, multimodal.py). There no projection of attention takes a quantisation
config; what a checkpoint stores of them in FP8 is dequantised as it loads (_try_load_fp8_attn_proj).
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.hyper import hyper_connections
from kvplan.architectures.blocks.latent import (
    DEEPSEEK_MOE,
    indexer,
    indexer_types,
    latent,
    mla,
    mla_attention,
    without_indexer,
)
from kvplan.architectures.blocks.moe import by_types_or
from kvplan.architectures.blocks.parts import LAYER, Tensors, even, linear, mlp, norm, norms, vector, whole
from kvplan.architectures.blocks.plain import TWO_NORMS, hidden_size
from kvplan.architectures.blocks.recipe import FULL, INDEXED, LINEAR, Parts, Recipe, by_index
from kvplan.architectures.blocks.state_space import kimi_delta, kimi_delta_part
from kvplan.architectures.blocks.tower import (
    Raw,
    encoder_layer,
    placed,
    qwen_patches,
    repeated,
    tower_layers,
    vision_view,
)
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.prediction import Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import KimiDeltaAttention, SparseIndexer
from kvplan.record import replace
from kvplan.weights.inventory import Placed, Role, Split

_MOE = replace(DEEPSEEK_MOE, layer_is_sparse=by_types_or(3))


def _pooled_indexer(view: ConfigView) -> Parts:
    """Each token's index entry is a key, a gate of the same width and a flag (models/glm5_next)."""
    width = derived(2 * view.integer("index_head_dim") + 1, "2 * index_head_dim + 1 (key, gate, flag)")
    return (mla(view), SparseIndexer(width, kpool=view.integer("index_kpool")))


_LAYERS = Recipe(
    {FULL: latent, INDEXED: _pooled_indexer, LINEAR: kimi_delta_part},
    by_index(lambda i, n: INDEXED if i % 4 == 3 else LINEAR),
    adjust=lambda view, kinds: [INDEXED if kind == FULL else kind for kind in kinds],
    sharing=lambda view, kinds: without_indexer(view, kinds, indexer_types(view, len(kinds))),
)


def _never_quantised(made: Tensors) -> Tensors:
    return tuple(replace(one, role=Role.OTHER) if one.role is Role.LINEAR else one for one in made)


def _delta(view: ConfigView, hidden: int) -> Tensors:
    (part,) = kimi_delta_part(view)
    assert isinstance(part, KimiDeltaAttention)
    return _never_quantised(
        kimi_delta(hidden, part.num_heads, part.head_dim, part.conv_kernel, full_gate=False)
    )


def _latent(view: ConfigView, hidden: int) -> Tensors:
    """Every layer has an indexer, those too that read another's choice; it pools by a gate of each token."""
    made = _never_quantised(mla_attention(view) + indexer(view))
    narrow, path = whole("index_head_dim", int(view.integer("index_head_dim"))), "self_attn.indexer"
    made += vector(f"{path}.index_kpool_compress_gate", narrow, whole("hidden_size", hidden))
    pooled = whole("index_kpool", int(view.integer("index_kpool")))
    return made + vector(f"{path}.index_kpool_compress_ape", pooled, narrow, dtype="float32")


def glm_next_tensors(view: ConfigView) -> Decoder:
    """A dense start, then experts with a shared one; streams around both halves of every layer."""
    hidden, kinds = hidden_size(view), _LAYERS.kinds(view)
    around = norms(TWO_NORMS, whole("hidden_size", hidden))
    if view.flag("mhc", default=True):
        around += hyper_connections(int(view.integer("hc_mult")), hidden)
    wide = int(view.integer("intermediate_size"))

    @lru_cache(maxsize=8)
    def layer(kind: str, sparse: bool) -> Tensors:
        mixer = _delta(view, hidden) if kind == LINEAR else _latent(view, hidden)
        forward = _MOE.tensors(view) if sparse else mlp("mlp", hidden, wide, split=Split.SHARED_EXPERT)
        return mixer + forward + around

    return Decoder(
        Frame(), tuple(layer(kind, _MOE.layer_is_sparse(view, index)) for index, kind in enumerate(kinds))
    )


def _tower(raw: Raw, view: ConfigView) -> list[Placed]:
    """GLM-OCR's tower: no learnt positions, norms of query and key heads; a gated merger."""
    vision = vision_view(raw)
    hidden, heads = int(vision.integer("hidden_size")), int(vision.integer("num_heads"))
    out, merge = int(vision.integer("out_hidden_size")), int(vision.integer("spatial_merge_size"))
    model, text = whole("vision hidden_size", hidden), whole("out_hidden_size", out)
    layer = encoder_layer(
        hidden,
        heads,
        int(vision.integer("intermediate_size")),
        gated=True,
        kind="rms",
        names=("attn.q", "attn.k", "attn.v", "attn.proj"),
        mlp_names=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
        norm_names=("norm1", "norm2"),
    )
    layer += norms(("attn.q_norm", "attn.k_norm"), whole("vision head_dim", hidden // heads))
    made = qwen_patches(vision, bias=True) + norm("visual.post_layernorm", model)
    made += repeated("visual.blocks", layer, tower_layers(vision, "depth"))
    made += vector("visual.downsample", text, model, whole("merged patches", merge**2))
    made += vector("visual.downsample.bias", text)
    between = even("projection_intermediate_size", int(vision.integer("projection_intermediate_size")))
    made += linear("visual.merger.proj", even("out_hidden_size", out), text)
    made += norm("visual.merger.post_projection_norm", text, kind=LAYER)
    made += linear("visual.merger.gate_proj", between, text) + linear("visual.merger.up_proj", between, text)
    return placed(made + linear("visual.merger.down_proj", text, between))


lineage(
    "glm5_next_text",
    layers=_LAYERS,
    tensors=glm_next_tensors,
    prediction=Prediction(without=("hc_",)),
)
lineage("glm5_next", tower=_tower)
