"""llama.cpp (release b9900 and near): the whole cache is allocated at start, so a request holds its slot.

Rules: `kvplan.engines.llamacpp.memory` and `kvplan.engines.llamacpp.models`. Devices are those of
``--split-mode layer`` with equal shares (``--tensor-split 1,1,…``): pipeline_parallel_size says how many. The
default of ``-c`` here is the request's length times the requests; llama-server's own default is the model's length.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from kvplan.engines.base import encoder_length, layer_answers, part_terms, request_tokens
from kvplan.engines.llamacpp.memory import Context, Layout, cells_of, layer_tensors, layout_of
from kvplan.engines.llamacpp.models import has_window_cache, refusal_of
from kvplan.engines.llamacpp.pool import Machine, answer, context_for, machine_of
from kvplan.engines.llamacpp.store import store_for
from kvplan.engines.options import EngineOption, Options, resolve
from kvplan.engines.own_options import LLAMACPP as OPTIONS
from kvplan.errors import KvplanError
from kvplan.families import CompressedAttention, SlidingWindow, Store
from kvplan.model import Layer, Model
from kvplan.results import EngineRef, ModelRef, PerGpu, Request, SizeResult, Total
from kvplan.settings import Settings
from kvplan.terms import Grows
from kvplan.units import MIB


class LlamaCpp:
    """Engine ``llamacpp``."""

    name: str = "llamacpp"
    versions: tuple[str, ...] = ("b9900",)
    options: tuple[EngineOption, ...] = OPTIONS

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Bytes of the buffers for ``requests`` slots of ``tokens``; with kv_cache_memory, what fits."""
        options = resolve(OPTIONS, dict(settings.engine_options), self.name)
        _check(settings)
        tokens = request_tokens(model, settings)
        encoder_tokens, warning = encoder_length(model, settings, tokens)
        store = store_for(model, settings, options)
        machine = machine_of(model, store, settings, options)
        context = context_for(options, tokens, settings.requests)
        gpus, host = machine.per_gpu(context), machine.on_host(context)
        fullest = machine.stages[gpus.index(max(gpus))]
        refusal = refusal_of(model)
        pool = None
        if refusal is None:
            refusal, pool = answer(machine, context, options, model, settings, tokens)
        if refusal is not None and refusal.code == "unsupported-model":
            per_gpu, total = PerGpu(0, 0, 0, Fraction(0), 0), Total(0, 0)
        else:
            per_gpu, total = _held(machine, context, fullest, gpus, settings.requests, tokens)
        return SizeResult(
            model=ModelRef(model.id, model.source),
            engine=EngineRef(self.name, version),
            settings=_shown(store, context, options, machine, host, settings),
            request=Request(tokens, encoder_tokens, settings.requests),
            per_gpu=per_gpu,
            total=total,
            layers=layer_answers(model, lambda part: store),
            pool=pool,
            refusal=refusal,
            warnings=(*model.warnings, *([warning] if warning else []), *_warnings(model, host)),
        )


def log_lines(model: Model, settings: Settings) -> list[str]:
    """The size lines that llama.cpp prints, one a cache: ``size = 68.00 MiB (8192 cells, 8 layers)``."""
    options = resolve(OPTIONS, dict(settings.engine_options), LlamaCpp.name)
    store = store_for(model, settings, options)
    context = context_for(options, request_tokens(model, settings), settings.requests)
    caches: dict[tuple[str, int], list[int]] = {}
    layout = layout_of(model, store, flash_attn=options.flag("flash_attn"))
    for layer, count in model.distinct().items():
        groups: dict[tuple[str, int], int] = {}
        for tensor in layer_tensors(layout, layer, context):
            key = (tensor.group, context.slots if tensor.group == "state" else tensor.cells)
            groups[key] = groups.get(key, 0) + tensor.bytes
        for key, amount in groups.items():
            entry = caches.setdefault(key, [0, 0])
            entry[0] += amount * count
            entry[1] += count
    return [
        f"size = {_mib(amount)} MiB ({cells} cells, {layers} layers)"
        for (_, cells), (amount, layers) in caches.items()
    ]


def _mib(amount: int) -> str:
    hundredths = (amount * 200 + MIB) // (2 * MIB)
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def _check(settings: Settings) -> None:
    for name in ("tensor_parallel_size", "decode_context_parallel_size"):
        count = getattr(settings, name)
        if count > 1:
            raise KvplanError(
                "unsupported-setting",
                f"engine llamacpp with {name} {count}: llama.cpp deals whole layers over its devices",
                help=f"leave it at 1 and use --pp {count}",
            )
    if settings.speculative_method or settings.num_speculative_tokens:
        raise KvplanError(
            "unsupported-setting",
            "engine llamacpp with a speculative method: llama.cpp gives the draft a context of its own",
            help="size the draft model by itself",
        )


def _held(
    machine: Machine,
    context: Context,
    fullest: tuple[tuple[Layer, int], ...],
    gpus: list[int],
    requests: int,
    tokens: int,
) -> tuple[PerGpu, Total]:
    share = requests if context.streams == 1 else context.slots
    growth, fixed = Fraction(0), 0
    for layer, count in fullest:
        for tensor in layer_tensors(machine.layout, layer, context):
            if tensor.group == "state":
                fixed += tensor.entry_bytes * count
        growth += count * _growth(machine.layout, layer, context, tokens)
    most = max(gpus)
    return PerGpu(most // share, most, most, growth, fixed), Total(sum(gpus) // share, sum(gpus))


def _growth(layout: Layout, layer: Layer, context: Context, tokens: int) -> Fraction:
    """Bytes that one more token of context adds, padding aside: nothing in a window that is full."""
    growth = Fraction(0)
    for part in layer.parts:
        if isinstance(part, CompressedAttention):
            growth += sum(
                (term.growth_at(tokens) for term in part_terms(part, layout.store)), start=Fraction(0)
            )
            continue
        windowed = cells_of(part, layout.windows, context)[1] and not context.swa_full
        for term in part_terms(part, layout.store):
            if term.grows is Grows.TOKEN:
                whole = term if windowed else replace(term, keep_last=None)
                growth += whole.growth_at(tokens)
    return growth


def _shown(
    store: Store, context: Context, options: Options, machine: Machine, host: int, settings: Settings
) -> dict[str, Any]:
    key, _, value = store.kv.name.partition("/")
    return {
        "cache_type_k": key,
        "cache_type_v": value or key,
        "n_ctx": context.n_ctx,
        "n_ctx_seq": context.cells,
        "n_seq_max": context.slots,
        "kv_unified": options.flag("kv_unified"),
        "n_ubatch": context.ubatch,
        "swa_full": context.swa_full,
        "flash_attn": options.flag("flash_attn"),
        "layers_on_gpu": sum(count for stage in machine.stages for _, count in stage),
        "layers_on_host": sum(count for _, count in machine.host),
        "host_kv_bytes": host,
        "pipeline_parallel_size": settings.pipeline_parallel_size,
    }


def _warnings(model: Model, host: int) -> list[str]:
    found = []
    windows = any(isinstance(part, SlidingWindow) for run in model.runs for part in run.layer.parts)
    if windows and not has_window_cache(model):
        found.append(f"llama.cpp keeps all tokens of {model.model_type}'s window layers")
    if host:
        found.append(f"{host:,} bytes of the cache lie in host memory")
    return found
