"""llama.cpp 0.5.0 (at 0c1e57098): the whole cache is allocated at start, so a request holds its slot.

Rules: `cache_layout.caches` and `start.models`. Devices are those of
``--split-mode layer``: pipeline_parallel_size says how many, and each gets an equal share, as the default
split by free memory gives equal GPUs that nothing else uses; unequal ones (``rtx-3090+rtx-3060``) get theirs.
The default of ``-c`` here is max_model_len, or else the request's length, times the requests; llama-server's
own default is the model's length.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.engines.base import (
    NOTHING_HELD,
    answer_length,
    answer_of,
    encoder_length,
    has_kind,
    layer_answers,
    planned_settings,
    planned_values,
    request_tokens,
    undividable,
)
from kvplan.engines.llamacpp.cache_layout.caches import PAD, Cache, Context, caches_of, layout_of
from kvplan.engines.llamacpp.cache_layout.pool import (
    Machine,
    answer,
    context_for,
    longest_slot,
    machine_of,
    slots_of,
    too_many_gpus,
)
from kvplan.engines.llamacpp.cache_layout.shift import check_retention, shifted
from kvplan.engines.llamacpp.context import served_context
from kvplan.engines.llamacpp.model_options import options_of
from kvplan.engines.llamacpp.options import OPTIONS, LlamacppOptions, not_counted
from kvplan.engines.llamacpp.start.cache_types import ggml_word, store_for
from kvplan.engines.llamacpp.start.drafts import check_draft
from kvplan.engines.llamacpp.start.models import has_window_cache, refusal_of, uses_flash
from kvplan.engines.llamacpp.start.overrides import hosted_layers
from kvplan.engines.llamacpp.start.trained import (
    YARN,
    cut_short,
    own_length,
    slot_length,
    stretches,
    trained_length,
)
from kvplan.engines.options import EngineOption
from kvplan.engines.retention import parsed
from kvplan.engines.supported import check_class
from kvplan.errors import KvplanError
from kvplan.families import Kind, Storage
from kvplan.model import Model
from kvplan.own_options import OwnOptions
from kvplan.record import Json, changed, record, replace
from kvplan.results import (
    EngineRef,
    LayerTerms,
    ModelRef,
    PerGpu,
    Refusal,
    Request,
    SizeResult,
    Total,
    plain_number,
)
from kvplan.settings import Serving, Settings, stated_length, with_setting, with_settings
from kvplan.units import MIB, human_bytes


class LlamaCpp:
    """Engine ``llamacpp``."""

    name: str = "llamacpp"
    versions: tuple[str, ...] = ("0.5",)
    options: tuple[EngineOption, ...] = OPTIONS

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Bytes of the buffers for ``requests`` slots of ``tokens``; with kv_cache_memory, what fits."""
        compiled = _compile(model, version, planned_values(settings))
        tokens = _length(model, settings, compiled.options)
        encoder_tokens, warning = encoder_length(model, settings, tokens)
        machine = compiled.machine
        options = served_context(model, settings, compiled.options, machine)
        context = context_for(options, settings.max_model_len or tokens, settings.requests)
        if settings.tokens is None:
            tokens = _asked_for(model, options, context, tokens)
        refusal, pool = compiled.refusal, None
        if refusal is None:
            refusal, pool = answer(machine, context, options, model, settings, tokens)
        held = NOTHING_HELD
        if compiled.refusal is None:
            full = bool(options.kv_retention) and tokens >= context.cells
            held = _held(machine, context, settings.requests, tokens, full=full)
        host = machine.host_bytes(context)
        sized = answer_of(
            compiled,
            Request(tokens, encoder_tokens, settings.requests, answer_length(settings, tokens)),
            held,
            pool,
            refusal,
            settings={
                **compiled.settings,
                "n_ctx": context.n_ctx,
                "n_ctx_seq": context.cells,
                "n_seq_max": context.slots,
                "host_kv_bytes": host,
                **({"context_shift": True} if options.kv_retention else {}),
                **({"rope_scaling": YARN} if stretches(options) else {}),
            },
            warnings=(
                warning,
                _in_host(machine, host, options) if host else None,
                cut_short(model, options, context),
                *shifted(options, context, tokens),
            ),
        )
        return changed(sized, devices=machine.devices(context))

    def longest(self, model: Model, settings: Settings, version: str) -> int | None:
        """max_model_len ``auto``: the longest, up to the model's own, of which the requests fit; None where
        no length does."""
        own = replace(settings, max_model_len=None, tokens=None)
        compiled = _compile(model, version, planned_values(own))
        context = context_for(compiled.options, PAD, settings.requests)
        most = trained_length(model, compiled.options) or _length(model, own, compiled.options)
        return longest_slot(compiled.machine, context, compiled.options, settings, most)

    def served(self, settings: Settings, slots: int, length: int) -> Settings:
        """The settings as llama-server takes them: so many slots of such a length as -np and -c, the cache's
        type as -ctk and -ctv. They give the same answer. A unified cache is what all requests hold together,
        and at least one of that length."""
        settings = self.in_own_words(settings)
        own = settings.own.without("fit_ctx")
        retention = parsed(own.get("kv_retention"))
        length = length if retention is None else min(length, retention.kept)
        each = min(length, settings.tokens or length) if own.get("kv_unified") else length
        own |= {"parallel": slots, "ctx_size": max(length, slots * each)}
        return replace(
            settings,
            max_model_len=None,
            max_num_seqs=None,
            own=own,
        )

    def in_own_words(self, settings: Settings) -> Settings:
        """The settings with the cache's type as -ctk and -ctv, which llama-server has in place of one for
        both."""
        if settings.kv_cache_dtype == "auto":
            return settings
        word = ggml_word(settings.kv_cache_dtype)
        own = OwnOptions.of({"cache_type_k": word, "cache_type_v": word}) | settings.own
        return replace(settings, kv_cache_dtype="auto", own=own)

    def trials(self, model: Model, settings: Settings) -> Iterator[list[tuple[str, Settings]]]:
        """Changes that make room, from the least to the most of each kind, in llama-server's words."""
        layers = model.num_layers
        yield [
            (
                f"-ctk {word} -ctv {word}",
                with_settings(settings, {"cache_type_k": word, "cache_type_v": word}),
            )
            for word in ("q8_0", "q4_0")
        ]
        yield from self.moves(model, settings)
        size, gpu = settings.pipeline_parallel_size, settings.gpu
        if gpu is not None and not gpu.row:
            yield [
                (f"--gpu {count}x{gpu.slug}", replace(settings, pipeline_parallel_size=count))
                for count in _CARDS
                if size < count <= layers
            ]

    def moves(self, model: Model, settings: Settings) -> Iterator[list[tuple[str, Settings]]]:
        """Experts of more and more layers in host memory, then whole layers, in llama-server's words."""
        own, layers = LlamacppOptions.of(settings), model.num_layers
        if shape_of(model, 2).experts_per_token and not own.cpu_moe:
            yield [
                (f"--n-cpu-moe {count}", with_setting(settings, "n_cpu_moe", count))
                for count in range((own.n_cpu_moe or 0) + 1, layers + 1)
            ]
        most = layers + 1 if own.n_gpu_layers is None else min(own.n_gpu_layers, layers + 1)
        yield [
            (f"-ngl {count}", with_setting(settings, "n_gpu_layers", count))
            for count in range(most - 1, 1, -1)  # with 1 only the output lies there
        ]


_CARDS = (2, 3, 4, 6, 8)


@record()
class Compiled:
    """Everything about (model, settings, version) that does not depend on the request."""

    model: ModelRef
    engine: EngineRef
    machine: Machine
    options: LlamacppOptions
    refusal: Refusal | None
    settings: Json
    layers: tuple[LayerTerms, ...]
    warnings: tuple[str, ...]


@lru_cache(maxsize=256)
def _compile(model: Model, version: str, values: tuple[Any, ...]) -> Compiled:
    settings = planned_settings(values)
    options = options_of(model, settings)
    _check(settings)
    check_draft(model, settings)
    check_retention(model, options)
    store = store_for(model, settings, options)
    machine = machine_of(model, store, settings, options)
    if settings.gpu is not None and settings.pipeline_parallel_size > 1:
        from kvplan.engines.llamacpp.budget import extra_rooms

        machine = changed(machine, extra=extra_rooms(model, settings, options))
    if options.host_memory is not None:
        from kvplan.engines.llamacpp.budget import host_weights

        machine = changed(machine, host_weights=host_weights(model, settings, options))
    return Compiled(
        ModelRef(model.id, model.source),
        EngineRef(LlamaCpp.name, version),
        machine,
        options,
        refusal_of(model)
        or check_class(model, "llama.cpp's converter")
        or undividable(model, settings)
        or too_many_gpus(settings),
        {
            **_shown(store, options, machine, settings),
            **_hosted_experts(model, options),
            "flash_attn": uses_flash(model, options.flash_attn),
        },
        layer_answers(model, lambda part: store),
        (*model.warnings, *_warnings(model)),
    )


def log_lines(model: Model, settings: Settings) -> list[str]:
    """The size lines that llama.cpp prints, one a cache: ``size = 68.00 MiB (8192 cells, 8 layers)``."""
    context, caches = caches_for(model, settings)
    return [
        f"size = {_mib(cache.tensor.bytes(context))} MiB"
        f" ({_cells(cache, context)} cells, {cache.layers} layers)"
        for cache in caches
    ]


def cells(model: Model, settings: Settings) -> dict[str, int]:
    """Cells of the full cache (kv_tokens) and of the windows' (swa_tokens), as the size lines print them."""
    context, caches = caches_for(model, settings)
    names = {"full": "kv_tokens", "window": "swa_tokens"}
    return {
        names[cache.tensor.group]: _cells(cache, context) for cache in caches if cache.tensor.group in names
    }


def caches_for(model: Model, settings: Settings) -> tuple[Context, tuple[Cache, ...]]:
    """The context that llama.cpp makes, and its caches over all devices."""
    options = options_of(model, settings)
    store = store_for(model, settings, options)
    length = settings.max_model_len or _length(model, settings, options)
    context = context_for(options, length, settings.requests)
    flash = uses_flash(model, options.flash_attn)
    return context, caches_of(layout_of(model, store, flash_attn=flash), model.distinct())


def _cells(cache: Cache, context: Context) -> int:
    return context.slots if cache.tensor.group == "state" else cache.tensor.cells(context)


def _mib(amount: int) -> str:
    hundredths = (amount * 200 + MIB) // (2 * MIB)
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def _in_host(machine: Machine, host: int, options: LlamacppOptions) -> str:
    """The part in host memory, and whether its size was stated."""
    layers = f" of {machine.on_host:,} layers" if machine.on_gpu else ""
    said = "" if options.host_memory is not None else not_counted(host)
    return f"{human_bytes(host)} of the cache{layers} lie in host memory{said}"


def _length(model: Model, settings: Settings, options: LlamacppOptions) -> int:
    """Tokens of a request; of a model that states no length, where nobody asks about one, those of a slot of
    -c. Raises KvplanError(no-length)."""
    nothing = settings.tokens is None and stated_length(settings) is None and model.max_model_len is None
    if nothing and options.ctx_size:
        return max(1, options.ctx_size // slots_of(options))
    return request_tokens(model, settings)


def _asked_for(model: Model, options: LlamacppOptions, context: Context, tokens: int) -> int:
    """Where no length is asked about, a request as long as its slot."""
    longest = trained_length(model, options)
    if options.ctx_size is not None:
        stated = own_length(model, options) != model.max_model_len or stretches(options)
        return min(longest if stated and longest else tokens, slot_length(model, options, context))
    return tokens if options.kv_retention else min(tokens, longest or tokens)


_NO_BACKEND = ("tpu", "neuron", "hpu")
"""How the targets begin for which ggml has no backend (ggml-org/llama.cpp ggml/src: CUDA, HIP, Metal, SYCL,
Vulkan, CANN, OpenCL, MUSA and others)."""


def _check(settings: Serving) -> None:
    for gpu in () if settings.gpu is None else settings.gpu.row or (settings.gpu,):
        if gpu.device_target is not None and gpu.device_target.startswith(_NO_BACKEND):
            raise KvplanError(
                "engine-gpu",
                f"llama.cpp has no backend for {gpu.name}",
                help=f"`kvplan list gpus {gpu.slug}` lists what each engine does there",
            )
    for name in ("tensor_parallel_size", "decode_context_parallel_size"):
        count = getattr(settings, name)
        if count > 1:
            raise KvplanError(
                "unsupported-setting",
                f"engine llamacpp with {name} {count}: llama.cpp deals whole layers over its devices",
                help=f"leave it at 1 and use --pp {count}",
            )


def _held(
    machine: Machine, context: Context, requests: int, tokens: int, *, full: bool = False
) -> tuple[PerGpu, Total]:
    """A request's share of what was allocated: its slot, or its part of the one buffer.

    full: its slot is, and what is generated takes the place of what is dropped.
    """
    gpus, fullest = machine.per_gpu(context), machine.fullest(context)
    share = requests if context.streams == 1 else context.slots
    most, together = max(gpus), sum(gpus)
    growth = Fraction(0)
    if not full:
        growth = sum((cache.tensor.growth(tokens, context) for cache in fullest), start=Fraction(0))
    fixed = sum(cache.tensor.entry_bytes for cache in fullest if cache.tensor.group == "state")
    return PerGpu(most // share, most, most, plain_number(growth), fixed), Total(together // share, together)


def _shown(store: Storage, options: LlamacppOptions, machine: Machine, settings: Serving) -> dict[str, Any]:
    key, _, value = store.kv.name.partition("/")
    return {
        "cache_type_k": ggml_word(key),
        "cache_type_v": ggml_word(value or key),
        "kv_unified": options.kv_unified,
        "n_ubatch": options.ubatch_size,
        "swa_full": options.swa_full,
        "layers_on_gpu": machine.on_gpu,
        "layers_on_host": machine.on_host,
        "pipeline_parallel_size": settings.pipeline_parallel_size,
    }


def _hosted_experts(model: Model, options: LlamacppOptions) -> dict[str, Any]:
    """Layers whose experts lie in host memory, wholly or in part (--n-cpu-moe, --cpu-moe, -ot)."""
    layers = model.num_layers
    asked = set(range(layers if options.cpu_moe else min(options.n_cpu_moe or 0, layers)))
    asked |= hosted_layers(options.override_tensor, layers)
    if not asked or not shape_of(model, 2).experts_per_token:
        return {}
    return {"expert_layers_on_host": len(asked)}


def _warnings(model: Model) -> list[str]:
    if has_kind(model, Kind.SLIDING) and not has_window_cache(model):
        return [f"llama.cpp keeps all tokens of {model.model_type}'s window layers"]
    return []
