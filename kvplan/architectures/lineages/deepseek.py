"""DeepSeek up to V3.2 (latent attention, an indexer), DeepSeek-OCR and Unlimited-OCR.

Sources: huggingface/transformers 5.23.0 models/{deepseek_v2,deepseek_v3,deepseek_v32,unlimited_ocr};
vllm-project/vllm 0.32 vllm/model_executor/models/deepseek_v2.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION, head_dim, hidden_per_head, num_kv_heads, one_kind
from kvplan.architectures.blocks.latent import DEEPSEEK_MOE, DSA, MLA, deepseek_tensors, latent
from kvplan.architectures.blocks.parts import LAYER, Tensors, linear, norm, norms, vector, whole
from kvplan.architectures.blocks.plain import Plain, hidden_size
from kvplan.architectures.blocks.recipe import FULL, INDEXED, Parts, Recipe, all_of
from kvplan.architectures.blocks.tower import VISION, Raw, encoder_layer, placed, repeated, under
from kvplan.architectures.config.custom_types import VLLM_CONFIGS, VLLM_MODELS, own_keys, wrapper_of
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.prediction import Prediction
from kvplan.architectures.registry import lineage
from kvplan.errors import KvplanError
from kvplan.families import FullAttention
from kvplan.weights.inventory import Placed


def _latent_or_heads(view: ConfigView) -> Parts:
    """Heads of 0 for positions and 0 without: no latent, but one key and one value a head (DeepSeek-OCR).

    Source: vllm-project/vllm 0.33 vllm/model_executor/models/deepseek_v2.py (use_mha, DeepseekAttention).
    """
    if view.get("qk_nope_head_dim") or view.get("qk_rope_head_dim"):
        return latent(view)
    return (FullAttention(num_kv_heads(view), hidden_per_head(view)),)


def _ocr_tower(raw: Raw, view: ConfigView) -> list[Placed]:
    """DeepSeek-OCR: SAM's base encoder, CLIP large and a projection; sizes are constants of the class.

    SAM and the projection are kept whole on every rank. Source: vllm-project/vllm 0.33 vllm/model_executor/
    models/deepencoder.py (build_sam_vit_b), deepseek_ocr.py; deepseek_vl2.py (MlpProjector).
    """
    named = raw.get("architectures")
    if not isinstance(named, list) or "DeepseekOCRForCausalLM" not in named:
        raise KvplanError(
            "no-weights",
            "the weights of 'deepseek_vl_v2' cannot be derived from its config: its encoder is timm's, which"
            " the config names and does not describe",
            help=(
                "put the checkpoint's model.safetensors.index.json beside the config",
                "give the weights of one GPU yourself: --weights 15GiB",
            ),
        )
    made = _sam(768, layers=12, whole_image=(2, 5, 8, 11))
    model, path = whole(VISION, 1024), "vision_model"
    made += vector(f"{path}.embeddings.class_embedding", model)
    made += vector(f"{path}.embeddings.patch_embedding", model, whole("channels × patch_size²", 3 * 14**2))
    made += vector(f"{path}.embeddings.position_embedding", whole("positions", 16**2 + 1), model)
    made += norm(f"{path}.pre_layrnorm", model, kind=LAYER)
    made += repeated(f"{path}.transformer.layers", encoder_layer(1024, 16, 4096), 24)
    text = whole("hidden_size", hidden_size(view))
    made += linear("projector.layers", text, whole("both encoders' width", 2048), bias=True)
    return placed(made + vector("image_newline", text) + vector("view_seperator", text))


def _sam(hidden: int, *, layers: int, whole_image: tuple[int, ...]) -> Tensors:
    """Windows of 14 patches but in a few layers, a position table for each, three convolutions behind."""
    model, path = whole(VISION, hidden), "sam_model"
    inner, joint = whole("vision intermediate_size", 4 * hidden), whole("query, key and value", 3 * hidden)
    width, grid = whole("vision head_dim", 64), whole("patches", 64)
    layer = linear("attn.qkv", joint, model, bias=True) + linear("attn.proj", model, model, bias=True)
    layer += linear("mlp.lin1", inner, model, bias=True) + linear("mlp.lin2", model, inner, bias=True)
    layer += norms(("norm1", "norm2"), model, LAYER)
    made = vector("patch_embed.proj", model, whole("channels × patch_size²", 3 * 16**2))
    made += vector("patch_embed.proj.bias", model) + vector("pos_embed", grid, grid, model)
    made += repeated("blocks", layer, layers)
    for side, count in ((64, len(whole_image)), (14, layers - len(whole_image))):
        made += repeated(
            "blocks.rel_pos",
            vector("sides", whole("rows and columns", 2), whole("distances", 2 * side - 1), width),
            count,
        )
    neck, nine = whole("neck", 256), whole("kernel", 9)
    made += vector("neck.0", neck, model) + norm("neck.1", neck, kind=LAYER)
    made += vector("neck.2", neck, neck, nine) + norm("neck.3", neck, kind=LAYER)
    halved, last = whole("halved", 512), whole("halved twice", 1024)
    return under(path, made + vector("net_2", halved, neck, nine) + vector("net_3", last, halved, nine))


def _reference_window(view: ConfigView) -> Parts:
    """The whole prompt stays; what follows it has a window, which an answer shorter than it never fills."""
    return (FullAttention(num_kv_heads(view), head_dim(view)),)


def _unlimited_ocr(view: ConfigView, count: int) -> list[str]:
    return ["reference_sliding_attention" if view.get("sliding_window") is not None else FULL] * count


lineage(
    "deepseek",
    reads=own_keys(VLLM_MODELS + "deepseek_v2.py (DeepseekForCausalLM)"),
    tensors=Plain(moe=DEEPSEEK_MOE),
)
lineage("deepseek_v2", layers=Recipe({**MLA, FULL: _latent_or_heads}, one_kind), tensors=deepseek_tensors)
lineage("deepseek_v3", layers=Recipe(MLA, one_kind), tensors=deepseek_tensors, prediction=Prediction())
lineage(
    "deepseek_v32", layers=Recipe(DSA, all_of(INDEXED)), tensors=deepseek_tensors, prediction=Prediction()
)
lineage(
    "unlimited_ocr_text",
    layers=Recipe({**ATTENTION, "reference_sliding_attention": _reference_window}, _unlimited_ocr),
)
lineage(
    "deepseek_vl_v2",
    reads=wrapper_of(VLLM_CONFIGS + "deepseek_vl2.py", "language_config", "deepseek_v2"),
    tower=_ocr_tower,
)
