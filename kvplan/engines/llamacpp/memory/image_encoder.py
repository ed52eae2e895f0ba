"""llama.cpp's encoder of images (mmproj): its weights, and the graph that it reserves as it warms up.

ggml-org/llama.cpp tools/mtmd/clip.cpp (load_hparams: set_warmup_n_tokens, set_limit_image_tokens; warmup,
reserve_compute_meta) and tools/mtmd/models/*.cpp, builds of April to September 2026. Checked against printed
buffers in tests/engines/test_image_encoder.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from kvplan.architectures.config.activation_shape import Shape, shape_of
from kvplan.architectures.weights import sources_of
from kvplan.engines.llamacpp.gguf_file.converted import tensors_of
from kvplan.engines.llamacpp.options import LlamacppOptions
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import Json
from kvplan.results import BudgetLine
from kvplan.units import gib

F32 = 4
CHANNELS, POSITIONS = 3, 4


class Warm(NamedTuple):
    """The image with which a type of encoder warms up.

    side: tokens of a side, after patches were merged; None: the config's image_size. merge: the key of how
    many patches of a side become one token, and that number where the config has none. most: tokens of the
    largest image; None: all are as large. printed: whether logs of such encoders were compared."""

    side: int | None = None
    merge: tuple[str, int] = ("", 1)
    most: int | None = None
    gated: bool = False
    windows: bool = False
    printed: bool = False


_QWEN = Warm(46, ("spatial_merge_size", 2), 4096, printed=True)
_GLM = Warm(46, ("spatial_merge_size", 2), 4096, gated=True)
_FIXED = Warm()
WARM: Mapping[str, Warm] = {
    **dict.fromkeys(
        ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_vision", "qwen3_5_moe", "qwen3_5_moe_vision"), _QWEN
    ),
    "qwen2_vl": _QWEN._replace(printed=False),
    "qwen2_5_vl": _GLM._replace(windows=True),
    **dict.fromkeys(
        ("glm4v", "glm4v_vision", "glm4v_moe", "glm4v_moe_vision", "glm_ocr", "glm_ocr_vision"), _GLM
    ),
    "pixtral": Warm(16, ("spatial_merge_size", 1), 1024, gated=True),
    "gemma4_vision": Warm(16, ("pooling_kernel_size", 3), 280, gated=True),
    **dict.fromkeys(
        ("siglip_vision_model", "clip_vision_model", "llama4_vision_model", "intern_vit_6b"), _FIXED
    ),
}
"""Type of the encoder's config → how it warms up."""


class _Patches(NamedTuple):
    """Patches of the image that the encoder warms up with, and of the largest; numbers of each."""

    shown: int
    most: int
    numbers: int
    hidden: int
    heads: int
    windows: bool
    printed: bool

    def bytes_of(self, patches: int, *, flash: bool) -> int:
        """With the mask of windows, an input in f32 that is copied to f16."""
        masks = 3 * patches // 2 if self.windows else 0
        scores = 0 if flash else self.heads * patches + self.hidden
        return patches * (self.numbers + masks + scores) * F32


def _config_of(model: Model) -> tuple[Json, str]:
    raw = model.config or {}
    vision = raw.get("vision_config")
    if not isinstance(vision, Mapping):
        return {}, ""
    return {**raw, **vision}, str(vision.get("model_type") or raw.get("model_type"))


def _whole(config: Json, *names: str) -> int:
    return next((value for name in names if isinstance(value := config.get(name), int) and value > 0), 0)


def _patches_of(model: Model) -> _Patches | None:
    """None where it is not known how the encoder warms up."""
    config, kind = _config_of(model)
    warm = WARM.get(kind)
    hidden = _whole(config, "hidden_size", "embed_dim")
    width, patch = _whole(config, "intermediate_size"), _whole(config, "patch_size")
    heads, size = _whole(config, "num_attention_heads", "num_heads"), _whole(config, "image_size")
    if warm is None or not (hidden and width and patch and heads):
        return None
    key, usual = warm.merge
    merge = _whole(config, key) or usual
    if warm.side is None and size < patch:
        return None
    count = (size // patch) ** 2 if warm.side is None else (warm.side * merge) ** 2
    most = count if warm.most is None else warm.most * merge * merge
    # Q, K and V, as they are and turned, or an MLP; features that earlier layers hand to the model.
    inner = max(6 * hidden, (2 if warm.gated else 1) * width + 2 * hidden)
    taken = config.get("deepstack_visual_indexes")
    inner += (len(taken) if isinstance(taken, list) else 0) * hidden
    numbers = CHANNELS * patch * patch + POSITIONS + inner
    return _Patches(count, most, numbers, hidden, heads, warm.windows, warm.printed)


def sees(model: Model) -> bool:
    """Whether the model has an encoder of images or of sound."""
    return shape_of(model, 2).is_multimodal


def encoder_line(model: Model, shape: Shape, options: LlamacppOptions) -> tuple[BudgetLine, ...]:
    """The graph of the image that the encoder warms up with, on the first GPU; at most that of the largest
    image, for which the buffer grows. Bytes: patches × (pixels + positions + 6 · hidden, or an MLP's) × 4."""
    if not (options.mmproj and options.mmproj_offload and shape.is_multimodal):
        return ()
    found = _patches_of(model)
    if found is None:
        return ()
    likely = found.bytes_of(found.shown, flash=options.flash_attn)
    most = max(likely, found.bytes_of(found.most, flash=options.flash_attn))
    most += most // (8 if found.printed else 2)
    how = f"the encoder's graph of {found.shown:,} patches, with which it warms up; of up to {found.most:,}"
    return (BudgetLine("image encoder", likely, likely - likely // 8, most, how),)


@lru_cache(maxsize=256)
def encoder_bytes(model: Model) -> int | None:
    """Bytes of the mmproj file that the converter makes of the encoder of images in 16 bits
    (conversion/base.py, MmprojModel: vectors, positions and patches in f32); None where the model has none or
    it is not known."""
    if model.is_gguf or (inventory := sources_of(model).inventory) is None:
        return None
    try:
        return tensors_of(model, inventory)[1] or None
    except KvplanError:
        return None


def encoder_words(model: Model, options: LlamacppOptions, shape: Shape) -> tuple[str, ...]:
    """Notes on the image encoder, where the model has one."""
    if not shape.is_multimodal:
        return ()
    amount = encoder_bytes(model)
    if not options.mmproj:
        size = "" if amount is None else f" of {gib(amount)}"
        return (f"without the encoder of images: --mmproj adds its weights{size}",)
    if amount is None:
        return ("the encoder of images (mmproj) is not counted: its tensors are not known",)
    if not options.mmproj_offload:
        return (f"the encoder of images lies in host memory: {gib(amount)}",)
    if _patches_of(model) is None:
        return ("of the encoder of images the weights are counted, what it computes with is not",)
    if isinstance((model.config or {}).get("audio_config"), Mapping):
        return ("of the encoder of sound the weights are counted, what it computes with is not",)
    return ()
