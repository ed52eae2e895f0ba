"""llama.cpp (release b9900 and near): the whole cache is allocated at start, so a request holds its slot.

Rules: `kvplan.engines.llamacpp.memory` and `kvplan.engines.llamacpp.models`. Devices are those of
``--split-mode layer`` with equal shares (``--tensor-split 1,1,…``): pipeline_parallel_size says how many. The
default of ``-c`` here is the request's length times the requests; llama-server's own default is the model's length.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from kvplan.dtypes import FLOAT32, KvDtype, kv_dtype
from kvplan.engines.base import encoder_length, layer_answers, part_terms, request_tokens
from kvplan.engines.llamacpp.memory import PAD, Context, Layout, cells_of, layer_tensors, layout_of, place
from kvplan.engines.llamacpp.models import has_window_cache, refusal_of
from kvplan.engines.options import EngineOption, Options, resolve
from kvplan.errors import KvplanError
from kvplan.families import CompressedAttention, Kind, SlidingWindow, Store
from kvplan.model import Layer, Model
from kvplan.record import record
from kvplan.results import EngineRef, ModelRef, PerGpu, Pool, PoolGroup, Refusal, Request, SizeResult, Total
from kvplan.settings import Settings
from kvplan.terms import Grows
from kvplan.units import MIB, round_up

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
MAX_SLOTS = 256
"""LLAMA_MAX_SEQ in src/llama-cparams.h."""
SERVER_SLOTS = 4
"""llama-server without -np (tools/server/server.cpp): four slots in one buffer."""

OPTIONS = (
    EngineOption("cache_type_k", "word", "Cache type of K.", choices=CACHE_TYPES, flags=("-ctk",)),
    EngineOption("cache_type_v", "word", "Cache type of V.", choices=CACHE_TYPES, flags=("-ctv",)),
    EngineOption("ctx_size", "count", "n_ctx, over all slots (default: what the requests need)."),
    EngineOption("parallel", "count", "Slots (default: one a request).", highest=MAX_SLOTS),
    EngineOption("kv_unified", "flag", "One buffer for all slots; without --parallel at least 4, as llama-server.", default=False),
    EngineOption("ubatch_size", "count", "Physical batch: a window layer has so many cells more.", default=512),
    EngineOption("swa_full", "flag", "Window layers at full length.", default=False),
    EngineOption("flash_attn", "flag", "Flash attention; a quantised V needs it.", default=True),
    EngineOption("n_gpu_layers", "count", "Layers on the GPUs, the last ones (default: all).", lowest=0, flags=("-ngl",)),
    EngineOption("kv_offload", "flag", "Keep the cache on the GPUs; off: in host memory.", default=True),
)  # fmt: skip


@record()
class Machine:
    """Which layers lie where. stages: distinct layers and their number on each GPU; host: those in host memory."""

    layout: Layout
    stages: tuple[tuple[tuple[Layer, int], ...], ...]
    host: tuple[tuple[Layer, int], ...]

    def per_gpu(self, context: Context) -> list[int]:
        return [self._bytes(stage, context) for stage in self.stages]

    def on_host(self, context: Context) -> int:
        return self._bytes(self.host, context)

    def _bytes(self, stage: tuple[tuple[Layer, int], ...], context: Context) -> int:
        return sum(self.layout.bytes_of(layer, context) * count for layer, count in stage)


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
        store = _store(model, settings, options)
        machine = _machine(model, store, settings, options)
        context = context_for(options, tokens, settings.requests)
        gpus, host = machine.per_gpu(context), machine.on_host(context)
        fullest = machine.stages[gpus.index(max(gpus))]
        refusal = refusal_of(model)
        pool = None
        if refusal is None:
            refusal, pool = _answer(machine, context, options, model, settings, tokens)
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


def context_for(options: Options, tokens: int, requests: int) -> Context:
    """src/llama-context.cpp: n_ctx = pad256(-c); a slot of its own gets pad256(n_ctx // slots) cells."""
    unified = options.flag("kv_unified")
    asked = options.count("parallel")
    slots = asked if asked is not None else max(requests, SERVER_SLOTS if unified else 1)
    given = options.count("ctx_size")
    n_ctx = round_up(given if given is not None else tokens * (requests if unified else slots), PAD)
    cells = n_ctx if unified else round_up(n_ctx // slots, PAD)
    ubatch = options.count("ubatch_size")
    return Context(slots, 1 if unified else slots, max(cells, PAD), ubatch or 0, options.flag("swa_full"))


def log_lines(model: Model, settings: Settings) -> list[str]:
    """The size lines that llama.cpp prints, one a cache: ``size = 68.00 MiB (8192 cells, 8 layers)``."""
    options = resolve(OPTIONS, dict(settings.engine_options), LlamaCpp.name)
    store = _store(model, settings, options)
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


def _store(model: Model, settings: Settings, options: Options) -> Store:
    """f16 unless --cache-type-k/v (or --kv-cache-dtype for both) say otherwise; states are always f32."""
    both = "f16" if settings.kv_cache_dtype == "auto" else settings.kv_cache_dtype
    key, value = options.word("cache_type_k") or both, options.word("cache_type_v") or both
    known = {kv_dtype(word).name for word in CACHE_TYPES}
    for word in (key, value):
        if kv_dtype(word).name not in known:
            raise KvplanError(
                "unsupported-dtype",
                f"llama.cpp has no cache type {word!r}",
                help="use q8_0; known: " + ", ".join(CACHE_TYPES),
            )
    if kv_dtype(value).value.scale_bytes and not options.flag("flash_attn"):
        raise KvplanError(
            "unsupported-dtype",
            f"a V cache of {value} needs flash attention",
            help=("leave flash_attn on", "use cache_type_v f16"),
        )
    one_tensor = any(
        part.kind in (Kind.MLA, Kind.COMPRESSED) for run in model.runs for part in run.layer.parts
    )
    if one_tensor and kv_dtype(key) != kv_dtype(value):
        raise KvplanError(
            "unsupported-dtype",
            f"the latent is K and V in one: cache types {key} and {value} differ",
            help=f"use {key} for both",
        )
    store = Store(
        kv=_mixed(key, value),
        dtype=FLOAT32,
        conv_state=FLOAT32,
        recurrent_state=FLOAT32,
        index_key=kv_dtype(key),
    )
    _check_widths(model, store, key, value)
    return store


@lru_cache(maxsize=256)
def _mixed(key: str, value: str) -> KvDtype:
    k, v = kv_dtype(key), kv_dtype(value)
    return k if k == v else replace(k, name=f"{k.name}/{v.name}", value=v.value)


def _check_widths(model: Model, store: Store, key: str, value: str) -> None:
    """src/llama-context.cpp: a head must be whole blocks of a quantised type."""
    for layer in model.distinct():
        for part in layer.parts:
            for term in part_terms(part, store):
                if (
                    term.grows is not Grows.TOKEN
                    or term.packing.elements == 1
                    or isinstance(part, CompressedAttention)
                ):
                    continue
                width = term.factors[-1].value
                if width % term.packing.elements:
                    word = value if term.name == "v" else key
                    raise KvplanError(
                        "unsupported-dtype",
                        f"{word} stores {term.packing.elements} numbers in a block, which does not divide"
                        f" {term.factors[-1].name} {width}",
                        help="use f16 or bf16",
                    )


def _machine(model: Model, store: Store, settings: Settings, options: Options) -> Machine:
    layers = model.layers()
    # A GGUF file counts its prediction layers; their cache belongs to the draft's own context.
    behind = len(model.draft_layers) if model.architecture is None else 0
    given = options.count("n_gpu_layers")
    if options.flag("kv_offload"):
        devices = place(len(layers) + behind, settings.pipeline_parallel_size, given)
    else:
        devices = [None] * len(layers)
    stages: list[Counter[Layer]] = [Counter() for _ in range(settings.pipeline_parallel_size)]
    host: Counter[Layer] = Counter()
    for layer, device in zip(layers, devices, strict=False):
        (host if device is None else stages[device])[layer] += 1
    layout = layout_of(model, store, flash_attn=options.flag("flash_attn"))
    return Machine(layout, tuple(tuple(stage.items()) for stage in stages), tuple(host.items()))


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


def _answer(
    machine: Machine, context: Context, options: Options, model: Model, settings: Settings, tokens: int
) -> tuple[Refusal | None, Pool | None]:
    """Whether the context holds the request, and what ``kv_cache_memory`` on each GPU holds."""
    memory = settings.kv_cache_memory
    if options.count("ctx_size") is not None and tokens > context.cells:
        return (
            Refusal(
                "request-too-long",
                f"a request of {tokens:,} tokens is longer than a slot's {context.cells:,} cells",
                largest_max_model_len=context.cells,
                help=(f"--ctx-size {tokens * context.streams}",),
            ),
            None,
        )
    if memory is None:
        return None, None
    block = _block_bytes(machine, context)
    longest = memory // block * PAD if block else max(model.max_model_len or 0, tokens)
    cells = _most_cells(machine, context, memory, longest)
    one = context if options.count("ctx_size") is not None else context_for(options, tokens, 1)
    fitting = _most_requests(machine, context, options, tokens, memory)
    if max(machine.per_gpu(one)) > memory or not fitting:
        largest = _most_cells(machine, one, memory, one.cells)
        return (
            Refusal(
                "not-enough-memory",
                f"a context of {one.n_ctx:,} cells needs {max(machine.per_gpu(one)):,} bytes on a GPU; {memory:,} are there",
                largest_max_model_len=largest or None,
                help=(f"--tokens {largest}",) if largest else (),
            ),
            None,
        )
    limit = context.slots if options.count("parallel") is not None else MAX_SLOTS
    n_ctx = cells * context.streams
    return None, Pool(
        bytes=memory,
        bytes_per_block=block * context.streams,
        num_blocks=cells // PAD,
        groups=_groups(machine, context),
        kv_tokens=n_ctx,
        max_concurrency=n_ctx / tokens if tokens else 0.0,
        max_requests=min(fitting, limit),
        requests_that_fit=fitting,
        max_num_seqs=limit,
    )


def _most_cells(machine: Machine, context: Context, memory: int, longest: int) -> int:
    """The largest multiple of 256 cells a stream that fits, up to ``longest``; 0 where not even 256 do."""

    def fits(blocks: int) -> bool:
        return max(machine.per_gpu(replace(context, cells=blocks * PAD))) <= memory

    low, high = 0, round_up(max(longest, 1), PAD) // PAD + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * PAD


def _most_requests(machine: Machine, context: Context, options: Options, tokens: int, memory: int) -> int:
    """How many requests of this length fit: with -c given what its slots hold, else one slot each, up to 256."""
    if options.count("ctx_size") is not None:
        fits = max(machine.per_gpu(context)) <= memory
        room = (
            context.slots
            if context.streams > 1 or not tokens
            else min(context.slots, context.cells // tokens)
        )
        return room if fits else 0
    most = MAX_SLOTS if options.count("parallel") is None else context.slots

    def fits_all(count: int) -> bool:
        asked = context_for(options, tokens, count)
        return max(machine.per_gpu(asked)) <= memory

    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits_all(middle) else (low, middle)
    return low


def _block_bytes(machine: Machine, context: Context) -> int:
    """256 cells of every layer that keeps the whole context, on the fullest GPU."""
    gpus = machine.per_gpu(context)
    stage = machine.stages[gpus.index(max(gpus))]
    return sum(
        tensor.entry_bytes * count * PAD
        for layer, count in stage
        for tensor in layer_tensors(machine.layout, layer, context)
        if tensor.cells == context.cells
    )


def _groups(machine: Machine, context: Context) -> tuple[PoolGroup, ...]:
    found: dict[tuple[str, int], list[int]] = {}
    gpus = machine.per_gpu(context)
    for layer, count in machine.stages[gpus.index(max(gpus))]:
        sizes: dict[tuple[str, int], int] = {}
        for tensor in layer_tensors(machine.layout, layer, context):
            sizes[tensor.group, tensor.cells] = (
                sizes.get((tensor.group, tensor.cells), 0) + tensor.entry_bytes
            )
        for key, size in sizes.items():
            entry = found.setdefault(key, [0, size])
            entry[0] += count
    return tuple(
        PoolGroup(
            kind,
            layers,
            1 if kind == "state" else PAD,
            size if kind == "state" else size * PAD,
            cells if kind == "state" else cells // PAD,
        )
        for (kind, cells), (layers, size) in found.items()
    )


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
