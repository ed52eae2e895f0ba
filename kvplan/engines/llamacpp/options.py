"""The options that llama.cpp alone has; read by the command line without loading the engine."""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.options import RetainingOptions, option, options_of
from kvplan.record import record
from kvplan.units import GIB, round_up

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
MAX_SLOTS = 256
"""LLAMA_MAX_SEQ in src/llama-cparams.h."""
BATCH, MICRO_BATCH = 2048, 512
"""n_batch and n_ubatch, where nobody says otherwise (common/common.h)."""
KEPT_FREE, LEAST_CONTEXT = GIB, 4096
"""fit_params_target of each device and fit_params_min_ctx (common/common.h)."""
SERVER_SLOTS = 4
"""llama-server without -np (tools/server/server.cpp): four slots in one buffer."""


@record()
class LlamacppOptions(RetainingOptions):
    """The options that llama.cpp alone has."""

    cache_type_k: str | None = option("word", "Cache type of K.", choices=CACHE_TYPES, flags=("-ctk",))
    cache_type_v: str | None = option("word", "Cache type of V.", choices=CACHE_TYPES, flags=("-ctv",))
    ctx_size: int | None = option(
        "count", "n_ctx, over all slots; 0: the model's own (default: what the requests need).", lowest=0
    )
    override_kv: str | None = option(
        "map",
        "Keys of the file with another value; its own length counts.",
        example='{"qwen3.context_length": 131072}',
    )
    rope_scaling: str | None = option(
        "word", "How positions are stretched (default: as the file says).", choices=("none", "linear", "yarn")
    )
    rope_scale: Fraction | None = option(
        "ratio", "How far: yarn serves so many times the model's own length."
    )
    yarn_orig_ctx: int | None = option("count", "The length that yarn stretches (default: the model's own).")
    parallel: int | None = option("count", "Slots (default: one a request).", highest=MAX_SLOTS)
    kv_unified: bool = option(
        "flag", "One buffer for all slots; without --parallel at least 4, as llama-server.", False
    )
    ubatch_size: int = option("count", "Physical batch: a window layer has so many cells more.", MICRO_BATCH)
    swa_full: bool = option("flag", "Window layers at full length.", False)
    flash_attn: bool = option("flag", "Flash attention; a quantised V needs it.", True)
    n_gpu_layers: int | None = option(
        "count", "Layers on the GPUs, the last ones (default: all).", lowest=0, flags=("-ngl",)
    )
    tensor_split: tuple[Fraction, ...] = option(
        "ratios", "Layers of each GPU in proportion, such as 2,1 (default: by their memory).", flags=("-ts",)
    )
    n_cpu_moe: int | None = option(
        "count", "Layers, the first ones, whose experts stay in host memory.", lowest=0, flags=("-ncmoe",)
    )
    cpu_moe: bool = option("flag", "All experts stay in host memory.", False, flags=("-cmoe",))
    override_tensor: tuple[str, ...] = option(
        "words", "Tensors that lie elsewhere: 20-47.exps of these layers in host memory.", flags=("-ot",)
    )
    fit: bool | None = option(
        "flag", "Cut the context and leave layers in host memory (default: where either is not given)."
    )
    fit_target: int = option("size", "Bytes of each GPU that --fit keeps free.", KEPT_FREE)
    fit_ctx: int | None = option(
        "count", "The context is the server's affair: its own length, cut to no less than this."
    )
    kv_offload: bool = option("flag", "Keep the cache on the GPUs; off: in host memory.", True)
    mmproj: bool = option(
        "flag", "The encoder of images, in f16, on the first GPU.", False, served=False, planned=True
    )
    mmproj_offload: bool = option("flag", "That encoder on the GPU; off: in host memory.", True)
    host_memory: int | None = option(
        "size", "Host memory that weights and cache may take, where they lie there: 64GiB.", served=False
    )


OPTIONS = options_of(LlamacppOptions)


def keeps_free(options: LlamacppOptions) -> int:
    """Bytes of each GPU that --fit keeps free: none where it is off, or finds nothing that is its own to
    change (common/fit.cpp: a context and layers that somebody gave stay as they are)."""
    given = options.ctx_size is not None and options.n_gpu_layers is not None
    fits = options.fit
    return 0 if fits is False or (fits is None and given) else options.fit_target or 0


def not_counted(amount: int) -> str:
    """The option to add where bytes lie in host memory of unstated size."""
    enough = round_up(amount + amount // 8, 64 * GIB) // GIB
    return f", which was not counted: add --host-memory {enough}GiB"
