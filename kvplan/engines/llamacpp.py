"""llama.cpp: cells for ``n_ctx`` tokens a slot, windows of their own size, states in fp32.

Mirrors ggml-org/llama.cpp at 0c1e57098: src/llama-context.cpp (n_ctx is padded to 256 a slot),
src/llama-kv-cache.cpp (K and V tensors of n_embd_gqa × cells × streams; no V under MLA),
src/llama-kv-cache-iswa.cpp (window layers hold pad256(min(cells, window · slots + n_ubatch))),
src/llama-memory-recurrent.cpp (r and s in f32, one row a slot), src/llama-model.cpp (layers dealt over
devices). The cache is allocated at start: what a request holds is its slot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from kvplan.dtypes import FLOAT32, KvDtype, kv_dtype
from kvplan.engines.base import encoder_length, layer_answers, part_terms, request_tokens, served_dtype
from kvplan.engines.options import EngineOption, Value, resolve
from kvplan.errors import KvplanError
from kvplan.families import ChunkedAttention, Kind, Part, SlidingWindow, Store
from kvplan.model import Layer, Model
from kvplan.results import EngineRef, ModelRef, PerGpu, Request, SizeResult, Total
from kvplan.settings import Settings
from kvplan.terms import Grows, Term
from kvplan.units import round_up

PAD = 256
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
NO_QUANTIZED_V = ("f32", "f16", "bf16")

# src/models/*.cpp that set swa_type; everywhere else a window is computed over a full-length cache.
WINDOWED = frozenset(
    "gemma2 gemma3 gemma3_text gemma3n gemma3n_text gemma4 gemma4_text gpt_oss cohere2 cohere2_moe exaone4"
    " exaone_moe olmo3 llama4 llama4_text mimo_v2_flash mimo_v2 step3p5 step3p7 afmoe smallthinker laguna plamo3"
    " granite_swa granitemoe_swa lfm3 mellum muse_glimmer deepseek_v4 dots3_note dots3_note_text".split()
)

OPTIONS = (
    EngineOption("cache_type_k", "word", "K cache type", choices=CACHE_TYPES),
    EngineOption("cache_type_v", "word", "V cache type", choices=CACHE_TYPES),
    EngineOption("ubatch_size", "count", "physical batch: a window layer holds so many cells more", default=512),
    EngineOption("parallel", "count", "slots (default: the number of requests)"),
    EngineOption("kv_unified", "flag", "one buffer for all slots (llama-server without -np)", default=False),
    EngineOption("swa_full", "flag", "window layers at full length", default=False),
    EngineOption("flash_attn", "flag", "flash attention; a quantised V needs it", default=True),
    EngineOption("n_gpu_layers", "count", "layers on the GPUs (default: all)", lowest=0),
    EngineOption("kv_offload", "flag", "false: the cache stays in host memory", default=True),
)


@dataclass(frozen=True, slots=True)
class Context:
    """Cells of one stream, and how many streams there are."""

    slots: int
    streams: int
    cells: int
    window_extra: int
    swa_full: bool

    def window_cells(self, window: int) -> int:
        """pad256(min(cells, window · (slots if unified else 1) + n_ubatch)); all cells with --swa-full."""
        if self.swa_full:
            return self.cells
        slots = self.slots if self.streams == 1 else 1
        return round_up(min(self.cells, window * slots + self.window_extra), PAD)


class LlamaCpp:
    """Engine ``llamacpp``."""

    name: str = "llamacpp"
    versions: tuple[str, ...] = ("b9900",)
    options = OPTIONS

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Bytes of the buffers that llama.cpp allocates for ``requests`` slots of ``tokens`` each."""
        if settings.tensor_parallel_size > 1:
            raise KvplanError(
                "unsupported-setting",
                "llama.cpp deals whole layers over devices: it has no tensor parallelism for the cache",
                help=f"use --pp {settings.tensor_parallel_size}",
            )
        options = resolve(OPTIONS, dict(settings.engine_options), self.name)
        tokens = request_tokens(model, settings)
        encoder_tokens, warning = encoder_length(model, settings, tokens)
        context = _context(settings, options, tokens)
        store = _store(model, settings, options)
        flash = bool(options["flash_attn"])
        widest_v = 0 if flash else max((_v_width(layer, store) for layer in model.distinct()), default=0)
        layers = model.layers()
        held = {
            layer: _layer_bytes(model, layer, store, context, encoder_tokens, widest_v) for layer in set(layers)
        }
        devices = _devices(len(layers), settings.pipeline_parallel_size, options)
        per_device: dict[int, int] = {device: 0 for device in range(settings.pipeline_parallel_size)}
        host = 0
        for layer, device in zip(layers, devices):
            if device is None:
                host += held[layer]
            else:
                per_device[device] += held[layer]
        fullest = max(per_device.values())
        on_fullest = [
            layer for layer, device in zip(layers, devices) if device is not None and per_device[device] == fullest
        ]
        count = settings.requests
        warnings = [*model.warnings, *([warning] if warning else []), *_window_warning(model)]
        total = sum(per_device.values())
        return SizeResult(
            model=ModelRef(model.id, model.source),
            engine=EngineRef(self.name, version),
            settings={
                "cache_type_k": store.kv.name.partition("/")[0],
                "cache_type_v": store.kv.name.partition("/")[2] or store.kv.name,
                "n_ctx": context.cells * context.streams,
                "n_ctx_seq": context.cells,
                "n_seq_max": context.slots,
                "kv_unified": context.streams == 1 and context.slots > 1,
                "n_ubatch": context.window_extra,
                "swa_full": context.swa_full,
                "flash_attn": flash,
                "n_gpu_layers": sum(device is not None for device in devices),
                "pipeline_parallel_size": settings.pipeline_parallel_size,
                "host_kv_bytes": host,
            },
            request=Request(tokens, encoder_tokens, count),
            per_gpu=PerGpu(
                kv_bytes_per_request=fullest // context.slots,
                kv_bytes=fullest,
                peak_bytes=fullest,
                bytes_per_token=sum(
                    (_growth(model, layer, store, tokens) for layer in on_fullest), start=Fraction(0)
                ),
                fixed_bytes_per_request=sum(_fixed(layer, store) for layer in on_fullest),
            ),
            total=Total(total // context.slots, total),
            layers=layer_answers(model, lambda part: store),
            warnings=tuple(warnings),
        )


def _context(settings: Settings, options: dict[str, Value | None], tokens: int) -> Context:
    slots = int(options["parallel"] or settings.requests)  # type: ignore[arg-type]
    unified = bool(options["kv_unified"])
    if unified:
        cells = round_up(tokens * settings.requests, PAD)
    else:
        cells = round_up(round_up(tokens * slots, PAD) // slots, PAD)
    return Context(
        slots=slots,
        streams=1 if unified else slots,
        cells=cells,
        window_extra=int(options["ubatch_size"] or 0),  # type: ignore[arg-type]
        swa_full=bool(options["swa_full"]),
    )


def _store(model: Model, settings: Settings, options: dict[str, Value | None]) -> Store:
    """f16 unless --cache-type-k/v (or --kv-cache-dtype for both) say otherwise; states are fp32."""
    both = "f16" if settings.kv_cache_dtype == "auto" else settings.kv_cache_dtype
    key, value = str(options["cache_type_k"] or both), str(options["cache_type_v"] or both)
    for word in (key, value):
        if kv_dtype(word).name not in {kv_dtype(known).name for known in CACHE_TYPES}:
            raise KvplanError(
                "unsupported-dtype", f"llama.cpp has no cache type {word!r}", help="known: " + ", ".join(CACHE_TYPES)
            )
    if kv_dtype(value).value.scale_bytes and not options["flash_attn"]:
        raise KvplanError(
            "unsupported-dtype", "a quantised V cache needs flash attention", help="leave --flash-attn on"
        )
    if key != value and any(part.kind is Kind.MLA for run in model.runs for part in run.layer.parts):
        raise KvplanError("unsupported-dtype", "MLA keeps one latent: cache_type_k and cache_type_v must agree")
    return Store(
        kv=_mixed(key, value),
        dtype=served_dtype(model, settings),
        conv_state=FLOAT32,
        recurrent_state=FLOAT32,
        index_key=kv_dtype(key),
    )


@lru_cache(maxsize=256)
def _mixed(key: str, value: str) -> KvDtype:
    k, v = kv_dtype(key), kv_dtype(value)
    return k if k == v else replace(k, name=f"{k.name}/{v.name}", value=v.value)


def _cells(model: Model, part: Part, context: Context) -> int:
    if isinstance(part, SlidingWindow) and model.model_type in WINDOWED:
        return context.window_cells(part.sliding_window)
    if isinstance(part, ChunkedAttention):
        return context.window_cells(part.attention_chunk_size)
    return context.cells


def _layer_bytes(
    model: Model, layer: Layer, store: Store, context: Context, encoder_tokens: int, widest_v: int
) -> int:
    """All slots of one layer: token terms × cells × streams; states × slots."""
    total = 0
    for part in layer.parts:
        for term in part_terms(part, store):
            if term.grows is Grows.TOKEN:
                entry = max(term.entry_bytes, widest_v) if term.name == "v" else term.entry_bytes
                total += entry * (_cells(model, part, context) // term.stride) * context.streams
            else:
                total += term.bytes_at(0, encoder_tokens) * context.slots
    return total


def _v_width(layer: Layer, store: Store) -> int:
    return max(
        (term.entry_bytes for part in layer.parts for term in part_terms(part, store) if term.name == "v"), default=0
    )


def _growth(model: Model, layer: Layer, store: Store, tokens: int) -> Fraction:
    growth = Fraction(0)
    for part in layer.parts:
        windowed = model.model_type in WINDOWED or isinstance(part, ChunkedAttention)
        for term in part_terms(part, store):
            if term.grows is Grows.TOKEN:
                growth += term.growth_at(tokens) if windowed else Fraction(_unwindowed(term).entry_bytes, term.stride)
    return growth


def _unwindowed(term: Term) -> Term:
    return replace(term, keep_last=None)


def _fixed(layer: Layer, store: Store) -> int:
    return sum(
        term.entry_bytes for part in layer.parts for term in part_terms(part, store) if term.grows is Grows.REQUEST
    )


def _devices(num_layers: int, devices: int, options: dict[str, Value | None]) -> list[int | None]:
    """The device of each layer, None for host memory: equal devices, the output layer counts as one more.

    src/llama-model.cpp: layer i of the last n_gpu_layers goes to the first device whose share of the
    split exceeds (i - first) / n_gpu_layers.
    """
    if not options["kv_offload"]:
        return [None] * num_layers
    given = options["n_gpu_layers"]
    on_gpu = num_layers + 1 if given is None else min(int(given), num_layers + 1)
    first = num_layers + 1 - on_gpu
    return [None if layer < first else (layer - first) * devices // on_gpu for layer in range(num_layers)]


def _window_warning(model: Model) -> list[str]:
    windows = any(isinstance(part, SlidingWindow) for run in model.runs for part in run.layer.parts)
    if windows and model.model_type not in WINDOWED:
        return [f"llama.cpp keeps all tokens of {model.model_type}'s window layers"]
    return []


