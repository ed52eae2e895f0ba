"""The options with which Ollama starts llama-server: ollama/ollama 0.33 (fb307609; llama.cpp b10488).

Since 0.30 every GGUF model runs in a llama-server of its own (llm/llama_server.go, startLlamaServer). Layers
that do not fit stay in host memory (`kvplan.engines.spill`): -ngl is left to llama.cpp. Not modelled, as
notes say: drafts that some models ship, adapters, models on Ollama's MLX runner.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.engines.budget.parts import memory_of
from kvplan.engines.doors import Begun, Door, Wish
from kvplan.engines.llamacpp.memory.image_encoder import sees
from kvplan.engines.llamacpp.programs.loaded import by_its_buffers
from kvplan.engines.llamacpp.programs.stored import in_build, of_file
from kvplan.engines.llamacpp.start.models import name_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.settings import Settings
from kvplan.units import GIB, MIB

BUILDS = {"gpt_oss": "bf16"}
"""Model type → what the library holds where it is not Q4_K_M: of gpt-oss only the experts are MXFP4."""
TIERS = ((47 * GIB, 262_144), (23 * GIB, 32_768), (0, 4_096))
"""Memory of all GPUs from which on this is the context, unless OLLAMA_CONTEXT_LENGTH says it
(server/routes.go)."""
VISION_CONTEXT = 2_048
"""The least for models with vision (server/sched.go)."""
ONE_AT_A_TIME = (
    "mllama", "qwen3vl", "qwen3_vl", "qwen35", "qwen3_5", "qwen3next", "qwen3_next", "lfm2", "nemotron_h",
)  # fmt: skip
"""How the architectures begin that it gives one slot (server/sched.go, load)."""
BATCHES = ((32_768, 2_048), (4_096, 1_024), (0, 512))
"""Tokens of the whole context above which the batch is so large."""
_LONGER = ("rope_scaling", "rope_scale", "yarn_orig_ctx", "override_kv")
_SURCHARGE = {2_048: 2 * GIB, 1_024: 768 * MIB, 512: 0}
_HEADROOM = {2_048: 60, 1_024: 75, 512: 100}
_LEAST_FLASH, _NO_FLASH = (6, 0), (7, 2)


def begin(model: Model, settings: Settings, wish: Wish) -> Begun:
    """The options of llama-server and the GPUs that it may take. Raises KvplanError(unsupported-setting)."""
    notes: list[str] = []
    _check_length(settings)
    gpu, gpus = settings.gpu, settings.pipeline_parallel_size
    totals = _totals(gpu, gpus)
    # One request at a time unless told (envconfig/config.go).
    parallel = max(wish.parallel or 1, 1)
    if parallel > 1 and name_of(model).startswith(ONE_AT_A_TIME):
        notes.append(f"Ollama gives {model.model_type} one slot, whatever OLLAMA_NUM_PARALLEL says")
        parallel = 1
    usual = _within(model, default_context(sum(totals) - gpus * wish.overhead))
    context = usual if wish.context is None else _within(model, wish.context)
    if wish.context is not None and context < wish.context:
        notes.append(f"Ollama cuts num_ctx {wish.context:,} to the model's own {context:,}")
    if wish.overhead:
        notes.append(
            "OLLAMA_GPU_OVERHEAD keeps nothing free since 0.30: only the context by itself reads it; "
            "LLAMA_ARG_FIT_TARGET does"
        )
    flash = wish.flash_attn if wish.flash_attn is not None else has_flash(gpu)
    predicted = predicted_bytes(model, settings, context * parallel)
    # selectLlamaServerPlacement: one GPU where its estimate takes no more than 80 % of it.
    if gpus > 1 and not wish.spread and predicted and predicted * 100 <= max(totals) * 80 and not _row(gpu):
        notes.append(f"Ollama puts it on one of the {gpus} GPUs: OLLAMA_SCHED_SPREAD=1 takes them all")
        gpus, totals = 1, totals[:1]
    batch = wish.batch or automatic_batch(context * parallel, predicted, totals, gpu, flash=flash)
    # ``-b`` and ``-ub`` are the same number.
    options: dict[str, object] = {"ubatch_size": batch}
    if sees(model):
        options["mmproj"] = True  # the library's files have it; on the first GPU
    if not flash:
        options["flash_attn"] = False
    if wish.cache_type is not None:
        word = cache_type(wish.cache_type)
        options.update(cache_type_k=word, cache_type_v=word)
    if wish.gpu_layers is not None and wish.gpu_layers >= 0:
        options["n_gpu_layers"] = wish.gpu_layers
    return Begun(context, usual, parallel, options, gpus, tuple(notes))


def _check_length(settings: Settings) -> None:
    if longer := [name for name in _LONGER if settings.own.get(name) is not None]:
        raise KvplanError(
            "unsupported-setting",
            f"Ollama cuts num_ctx to the model's own length, whatever {longer[0]} says",
            help="-e llamacpp: llama-server itself takes it",
        )


def default_context(total: int) -> int:
    """num_ctx where nobody says it, by the bytes of all GPUs."""
    return next(context for least, context in TIERS if total >= least)


def _within(model: Model, context: int) -> int:
    """At least 4, with vision 2,048; at most the model's own length (llm/server.go)."""
    least = VISION_CONTEXT if sees(model) else 4
    return min(max(context, least), model.max_model_len or max(context, least))


def has_flash(gpu: Gpu | None) -> bool:
    """ml/device.go, FlashAttentionSupported: of NVIDIA's GPUs from 6.0 on, but not 7.2; elsewhere."""
    capability = None if gpu is None else gpu.compute_capability
    return capability is None or (capability >= _LEAST_FLASH and capability != _NO_FLASH)


def predicted_bytes(model: Model, settings: Settings, cells: int) -> int:
    """llm.PredictServerVRAM: the file, and K and V of every layer in f16 with the least KV heads and the
    width hidden / heads; 0 where the file's size is not known."""
    from kvplan.engines.llamacpp.budget import file_bytes

    size = file_bytes(model, settings)
    if size is None:
        return 0
    parts = (part for layer in model.distinct() for part in layer.parts)
    heads = [part.num_kv_heads for part in parts if part.kind is Kind.FULL or part.kind is Kind.SLIDING]
    width = model.hidden_size // model.num_attention_heads if model.num_attention_heads else 0
    return size + 4 * model.num_layers * min(heads, default=1) * width * cells


def automatic_batch(
    cells: int, predicted: int, totals: tuple[int, ...], gpu: Gpu | None, *, flash: bool
) -> int:
    """``-ub``: server/sched.go, automaticGenerationBatch. cells: of all slots."""
    if not flash and gpu is not None and gpu.compute_capability is not None:
        return 256 if cells > 4_096 and any(0 < total <= 8 * GIB for total in totals) else 512
    available = sum(totals)
    found = next(batch for above, batch in BATCHES if cells > above)
    sizes = [batch for _, batch in BATCHES if batch <= found]
    return next((batch for batch in sizes if batch == 512 or _fits(batch, predicted, available)), 512)


def _fits(batch: int, predicted: int, available: int) -> bool:
    if not predicted or not available:
        return True
    threshold = available * 80 // 100
    if predicted > threshold or predicted > available * _HEADROOM[batch] // 100:
        return False
    return _SURCHARGE[batch] <= threshold - predicted


def _totals(gpu: Gpu | None, gpus: int) -> tuple[int, ...]:
    """Bytes of each GPU; 0 where nobody published them."""
    kinds = () if gpu is None else gpu.row or (gpu,) * gpus
    return tuple(memory_of(one)[0] or 0 for one in kinds)


def _row(gpu: Gpu | None) -> bool:
    return gpu is not None and bool(gpu.row)


def build_of(model: Model) -> str:
    """The file that the library has of a model. Raises KvplanError(bad-setting)."""
    return BUILDS.get(name_of(model), "q4_k_m")


def cache_type(word: str) -> str:
    """OLLAMA_KV_CACHE_TYPE as llama-server takes it. Raises KvplanError(bad-flag)."""
    from kvplan.engines.llamacpp.options import CACHE_TYPES

    if word.lower() not in CACHE_TYPES:
        raise KvplanError(
            "bad-flag", f"OLLAMA_KV_CACHE_TYPE takes another value than {word!r}", help=", ".join(CACHE_TYPES)
        )
    return word.lower()


def command(name: str, serve: Mapping[str, object]) -> tuple[str, ...]:
    """The commands that start it so: the server's variables (envconfig/config.go), then the model.

    serve: llama-server's flags, of which it has the context, the requests at once, the cache's type and flash
    attention; ``num_gpu`` and ``num_batch`` are parameters of a Modelfile.
    """
    parallel, cells = serve.get("parallel") or 1, serve.get("ctx_size")
    kind = serve.get("cache_type_k") or serve.get("kv_cache_dtype")
    flash = serve.get("flash_attn")
    variables = {
        "OLLAMA_CONTEXT_LENGTH": cells // parallel
        if isinstance(cells, int) and isinstance(parallel, int)
        else None,
        "OLLAMA_NUM_PARALLEL": parallel,
        "OLLAMA_FLASH_ATTENTION": int(flash)
        if isinstance(flash, bool)
        else 1
        if kind not in (None, "auto")
        else None,
        "OLLAMA_KV_CACHE_TYPE": None if kind == "auto" else kind,
    }
    words = [f"{key}={value}" for key, value in variables.items() if value is not None]
    told = (
        "parallel",
        "ctx_size",
        "cache_type_k",
        "cache_type_v",
        "kv_cache_dtype",
        "flash_attn",
        "quantization",
    )
    left = [f"{key} {value}" for key, value in serve.items() if key not in told]
    made = (f"# left to llama.cpp's own fitting: {', '.join(left)}",) if left else ()
    if name.endswith(".gguf"):
        file, name = name, name.removesuffix(".gguf").lower()
        made = (*made, f"echo 'FROM ./{file}' > Modelfile", f"ollama create {name} -f Modelfile")
    return " ".join((*words, "ollama serve")), *made, f"ollama run {name}"


DOOR = Door(
    "ollama",
    "Ollama",
    "llamacpp",
    ("0.30", "0.31", "0.32", "0.33"),
    build_of,
    begin,
    "OLLAMA_CONTEXT_LENGTH=",
    "OLLAMA_NUM_PARALLEL=",
    1,
    head="ollama:",
    command=command,
    loaded=by_its_buffers,
    stored=of_file,
    in_build=in_build,
)
