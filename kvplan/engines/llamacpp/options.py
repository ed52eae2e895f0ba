"""The options that llama.cpp alone has; read by the command line without loading the engine."""

from __future__ import annotations

from kvplan.engines.options import RETENTION, EngineOption, Options
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
OPTIONS = (
    EngineOption("cache_type_k", "word", "Cache type of K.", choices=CACHE_TYPES, flags=("-ctk",)),
    EngineOption("cache_type_v", "word", "Cache type of V.", choices=CACHE_TYPES, flags=("-ctv",)),
    EngineOption(
        "ctx_size",
        "count",
        "n_ctx, over all slots; 0: the model's own (default: what the requests need).",
        lowest=0,
    ),
    EngineOption("parallel", "count", "Slots (default: one a request).", highest=MAX_SLOTS),
    EngineOption(
        "kv_unified",
        "flag",
        "One buffer for all slots; without --parallel at least 4, as llama-server.",
        default=False,
    ),
    EngineOption(
        "ubatch_size", "count", "Physical batch: a window layer has so many cells more.", default=MICRO_BATCH
    ),
    EngineOption("swa_full", "flag", "Window layers at full length.", default=False),
    EngineOption("flash_attn", "flag", "Flash attention; a quantised V needs it.", default=True),
    EngineOption(
        "n_gpu_layers",
        "count",
        "Layers on the GPUs, the last ones (default: all).",
        lowest=0,
        flags=("-ngl",),
    ),
    EngineOption(
        "tensor_split",
        "ratios",
        "Layers of each GPU in proportion, such as 2,1 (default: by their memory).",
        flags=("-ts",),
    ),
    EngineOption(
        "n_cpu_moe",
        "count",
        "Layers, the first ones, whose experts stay in host memory.",
        lowest=0,
        flags=("-ncmoe",),
    ),
    EngineOption("cpu_moe", "flag", "All experts stay in host memory.", default=False, flags=("-cmoe",)),
    EngineOption(
        "fit",
        "flag",
        "Cut the context and leave layers in host memory (default: where either is not given).",
    ),
    EngineOption("fit_target", "size", "Bytes of each GPU that --fit keeps free.", default=KEPT_FREE),
    EngineOption(
        "fit_ctx",
        "count",
        "The context is the server's affair: its own length, cut to no less than this.",
    ),
    EngineOption("kv_offload", "flag", "Keep the cache on the GPUs; off: in host memory.", default=True),
    EngineOption(
        "mmproj",
        "flag",
        "The encoder of images, in f16, on the first GPU.",
        default=False,
        served=False,
        planned=True,
    ),
    EngineOption(
        "host_memory",
        "size",
        "Host memory that weights and cache may take, where they lie there: 64GiB.",
        served=False,
    ),
    RETENTION,
)


def keeps_free(options: Options) -> int:
    """Bytes of each GPU that --fit keeps free: none where it is off, or finds nothing that is its own to
    change (common/fit.cpp: a context and layers that somebody gave stay as they are)."""
    given = options.count("ctx_size") is not None and options.count("n_gpu_layers") is not None
    fits = options.values["fit"]
    return 0 if fits is False or (fits is None and given) else options.count("fit_target") or 0


def not_counted(amount: int) -> str:
    """What to add where bytes lie in host memory and nobody said how much of it there is."""
    enough = round_up(amount + amount // 8, 64 * GIB) // GIB
    return f", which was not counted: add --host-memory {enough}GiB"
