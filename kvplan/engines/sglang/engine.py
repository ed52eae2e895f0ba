"""SGLang 0.5.23: a pool of tokens (pages of page_size), one more for windows, slots for states.

Rules: `start.arguments` (defaults), `cache_layout.cells` (bytes of a token), `cache_layout.pools` (from bytes
to tokens), `budget` (the automatic memory fraction), `start.models` (which classes). kv_cache_memory is what
SGLang has for KV and states on one GPU after weights and slack (its "rest memory"). Of options that map to
another name: block_size is --page-size, max_num_seqs --max-running-requests, max_model_len --context-length.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from kvplan.engines.base import (
    NOTHING_HELD,
    answer_length,
    answer_of,
    doubt,
    encoder_length,
    has_kind,
    is_assumed,
    layer_answers,
    planned_settings,
    planned_values,
    request_tokens,
)
from kvplan.engines.options import EngineOption
from kvplan.engines.sglang.answer_settings import shown_arguments, shown_sizes, warnings_of
from kvplan.engines.sglang.cache_layout.cells import store_of
from kvplan.engines.sglang.cache_layout.pools import EVICTION_INTERVAL, build_pools, solve, trailing
from kvplan.engines.sglang.cache_layout.stages import PoolError, Pools, Sizes, Stage
from kvplan.engines.sglang.options import OPTIONS, SglangOptions
from kvplan.engines.sglang.refusals import divided_refusal, own_context, refusal_of_settings
from kvplan.engines.sglang.start.arguments import Arguments, experts_of, resolve_arguments
from kvplan.engines.sglang.start.devices import device_of, kernels_of
from kvplan.engines.sglang.start.models import refusal_of
from kvplan.engines.sglang.versions import VERSIONS, rules_of
from kvplan.engines.supported import check_class
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.record import Json, record
from kvplan.results import (
    EngineRef,
    LayerTerms,
    ModelRef,
    PerGpu,
    Pool,
    PoolGroup,
    Refusal,
    Request,
    SizeResult,
    Total,
    plain_number,
)
from kvplan.settings import Settings
from kvplan.units import GIB, round_up
from kvplan.weights.formats import Kernel


def expert_kernels(model: Model, settings: Settings, version: str) -> tuple[Kernel, ...]:
    """The kernels that may keep experts stored in blocks, the likely one first (`kvplan.weights.formats`)."""
    ranks, _ = experts_of(settings, SglangOptions.of(settings))
    return kernels_of(device_of(settings.gpu), rules_of(version), model.model_type, expert_parallel=ranks > 1)


class Sglang:
    """Engine ``sglang``."""

    name: str = "sglang"
    versions: tuple[str, ...] = VERSIONS
    options: tuple[EngineOption, ...] = OPTIONS

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Pages and slots that the requests hold; with kv_cache_memory the pools and who fits."""
        known = compiled(model, version, asked_context(model, settings, version), planned_values(settings))
        arguments, pools = known.arguments, known.pools
        tokens = settings.tokens if settings.tokens is not None else arguments.context_len
        encoder_tokens, warning = encoder_length(model, settings, tokens)
        refusal = known.refusal
        if refusal is None and tokens > arguments.context_len:
            refusal = Refusal(
                "request-too-long",
                f"a request of {tokens:,} tokens is longer than the context of {arguments.context_len:,}",
                largest_max_model_len=arguments.context_len,
                help=(f"--tokens {arguments.context_len}", f"--max-model-len {tokens}"),
            )
        answer = answer_length(settings, tokens)
        if refusal is None and settings.tokens is not None and settings.answer_tokens is not None:
            refusal = _too_long_a_prompt(tokens - answer, arguments.context_len)
        held, pool, shown = NOTHING_HELD, None, known.settings
        if pools is not None:
            # An encoder's tokens lie in the same slots as the decoder's.
            kept = tokens + (encoder_tokens if has_kind(model, Kind.CROSS) else 0)
            held = held_by_requests(pools, kept, settings.requests)
            if settings.kv_cache_memory is not None and refusal is None and pools.keeps:
                try:
                    sizes = solve(pools, settings.kv_cache_memory)
                    pool = pool_of(pools, sizes, kept, settings.kv_cache_memory)
                    shown = {**shown, **shown_sizes(arguments, sizes)}
                except PoolError as error:
                    refusal = Refusal("not-enough-memory", str(error))
        request = Request(tokens, encoder_tokens, settings.requests, answer)
        return answer_of(known, request, held, pool, refusal, settings=shown, warnings=(warning,))


def _too_long_a_prompt(prompt: int, context: int) -> Refusal | None:
    """sgl-project/sglang srt/managers/utils.py (validate_input_length): max_req_len is context - 1, and a
    prompt is shorter than max_req_len - 5."""
    beyond = traits_of(Sglang.name).beyond_prompt
    if prompt + beyond <= context:
        return None
    return Refusal(
        "request-too-long",
        f"a prompt of {prompt:,} tokens takes a context of {prompt + beyond:,}: SGLang leaves {beyond} of its"
        f" {context:,} to the answer",
        largest_max_model_len=context,
        help=(f"--max-model-len {prompt + beyond}",),
    )


@record()
class Compiled:
    """Everything that does not depend on the request; pools is None when the model is refused."""

    model: ModelRef
    engine: EngineRef
    arguments: Arguments
    pools: Pools | None
    refusal: Refusal | None
    settings: Json
    layers: tuple[LayerTerms, ...]
    warnings: tuple[str, ...]


@lru_cache(maxsize=256)
def compiled(model: Model, version: str, context_len: int, values: tuple[Any, ...]) -> Compiled:
    settings = planned_settings(values)
    if any(getattr(part, "index_of_latent", False) for run in model.runs for part in run.layer.parts):
        raise KvplanError(
            "unknown-rule",
            f"how SGLang lays out the latents that layers of {model.model_type} share is not known",
        )
    options = SglangOptions.of(settings)
    arguments = resolve_arguments(model, settings, options, context_len, version)
    refusal = (
        refusal_of(model, version)
        or check_class(model, "SGLang")
        or refusal_of_settings(model, settings, options, arguments, version)
    )
    assumed = is_assumed(model, settings)
    doubts = doubt(divided_refusal(model, settings, options, arguments, assumed=True)) if assumed else ()
    return Compiled(
        ModelRef(model.id, model.source),
        EngineRef(Sglang.name, version),
        arguments,
        build_pools(model, arguments) if refusal is None or refusal.code == "max-model-len" else None,
        refusal,
        MappingProxyType(shown_arguments(model, arguments)),
        layer_answers(model, lambda part: store_of(arguments, part)),
        (
            *model.warnings,
            *doubts,
            *warnings_of(model, arguments, refused=refusal is not None),
        ),
    )


@record()
class Allocation:
    """One line of the log: ``KV Cache is allocated. #tokens: N, K size: x GB, V size: y GB``.

    Bytes of one GPU. name: full, window or state; of states tokens are slots, K the conv states and V the
    recurrent ones (``Mamba Cache is allocated. max_mamba_cache_size: N, conv_state size: xGB, …``).
    """

    name: str
    tokens: int
    k_bytes: int
    v_bytes: int

    def words(self) -> str:
        if not self.v_bytes:
            return f"#tokens: {self.tokens}, KV size: {_gib(self.k_bytes)} GB"
        return f"#tokens: {self.tokens}, K size: {_gib(self.k_bytes)} GB, V size: {_gib(self.v_bytes)} GB"


def pools_of(model: Model, settings: Settings, version: str) -> Pools | None:
    """The pools of each pipeline stage; None where the model is refused."""
    return compiled(model, version, asked_context(model, settings, version), planned_values(settings)).pools


def allocations(model: Model, settings: Settings, version: str = VERSIONS[-1]) -> list[list[Allocation]]:
    """The tensors really allocated by every pipeline stage, the fullest first.

    Each pool has one page more than its tokens, the states one slot more. Raises KvplanError.
    """
    if settings.kv_cache_memory is None:
        raise KvplanError("no-memory", "how much memory the cache may take was not given")
    pools = pools_of(model, settings, version)
    if pools is None:
        raise KvplanError("unsupported-model", f"SGLang does not serve {model.id}")
    page = pools.arguments.page_size
    try:
        sizes = solve(pools, settings.kv_cache_memory)
    except PoolError as error:
        raise KvplanError("not-enough-memory", str(error)) from error
    stages = sorted(pools.stages, key=lambda stage: stage.full + stage.window, reverse=True)
    return [
        [
            Allocation(name, entries, key * (entries + more), rest * (entries + more))
            for name, entries, more, key, rest in (
                ("full", sizes.max_total_num_tokens, page, cell.full_k, cell.full - cell.full_k),
                ("window", sizes.window_tokens, page, cell.window_k, cell.window - cell.window_k),
                ("state", sizes.state_slots, 1, cell.conv, cell.ssm),
            )
            if key + rest
        ]
        for cell in (stage.target for stage in stages)
    ]


def _gib(amount: int) -> str:
    hundredths = (amount * 200 + GIB) // (2 * GIB)
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def asked_context(model: Model, settings: Settings, version: str = VERSIONS[-1]) -> int:
    """--context-length, else the model's own; else as long as the request."""
    return settings.max_model_len or own_context(model, version) or max(1, request_tokens(model, settings))


def _pages(tokens: int, page: int) -> int:
    return round_up(tokens, page)


def _window_held(pools: Pools, tokens: int) -> int:
    """Tokens of the window pool that a running request keeps."""
    if pools.window is None:
        return 0
    page = pools.arguments.page_size
    return min(_pages(tokens, page), _pages(trailing(pools), page))


def _stage_bytes(pools: Pools, stage: Stage, tokens: int) -> tuple[int, Fraction, int]:
    """(bytes of one request, growth by a token, fixed bytes) on one GPU of the stage."""
    arguments = pools.arguments
    page, own = arguments.page_size, -(-tokens // arguments.dcp)
    if stage.compressed is not None:
        sizes = stage.compressed
        window = sizes.window
        full = sizes.full - arguments.swa_ratio * window
        held = min(_pages(tokens, page), _pages(sizes.sliding_window + EVICTION_INTERVAL + page, page))
        state = sizes.ring * sizes.state_row * sizes.layers_128
        return int(full * _pages(tokens, page) + window * held) + state, full, state
    window_tokens = _window_held(pools, tokens)
    growing = stage.window if window_tokens and tokens < trailing(pools) else 0
    fixed = stage.target.slot * arguments.slots_per_request
    held_bytes = stage.full * _pages(own, page) + stage.window * window_tokens + fixed
    return held_bytes, Fraction(stage.full, arguments.dcp) + growing, fixed


def held_by_requests(pools: Pools, tokens: int, requests: int) -> tuple[PerGpu, Total]:
    """Pages of the full pool, the tail that the window pool keeps, and the request's state slots."""
    stages = [_stage_bytes(pools, stage, tokens) for stage in pools.stages]
    most, growth, fixed = max(stages, key=lambda stage: stage[0])
    replica = sum(held for held, _, _ in stages) * pools.arguments.attn_tp
    return PerGpu(most, most * requests, most * requests, plain_number(growth), fixed), Total(
        replica, replica * requests
    )


def pool_of(pools: Pools, sizes: Sizes, tokens: int, memory: int) -> Pool:
    arguments = pools.arguments
    page = arguments.page_size
    stage = max(pools.stages, key=pools.cell)
    logical = sizes.max_total_num_tokens
    if pools.window is None and not pools.compressed:
        logical *= arguments.dcp
    fitting = logical // max(_pages(tokens, page * arguments.dcp), 1)
    if sizes.window_tokens and pools.window is not None:
        fitting = min(fitting, sizes.window_tokens // max(_window_held(pools, tokens), 1))
    if sizes.state_slots:
        fitting = min(fitting, sizes.state_slots // arguments.slots_per_request)
    return Pool(
        bytes=memory,
        bytes_per_block=int(pools.cell(stage) * page),
        num_blocks=sizes.max_total_num_tokens // page,
        groups=_groups(pools, stage, sizes),
        kv_tokens=logical,
        max_concurrency=logical / arguments.context_len,
        max_requests=min(fitting, sizes.max_running_requests),
        requests_that_fit=fitting,
        max_num_seqs=sizes.max_running_requests,
        max_running=min(fitting, sizes.max_running_requests),
    )


def _groups(pools: Pools, stage: Stage, sizes: Sizes) -> tuple[PoolGroup, ...]:
    """The pools; blocks_per_request at the context's length."""
    arguments = pools.arguments
    page, length = arguments.page_size, arguments.context_len
    if stage.compressed is not None:
        found = stage.compressed
        full = int((found.full - arguments.swa_ratio * found.window) * page)
        return (
            PoolGroup("compressed", stage.layers, page, full, -(-length // page)),
            PoolGroup(
                "window",
                stage.layers,
                page,
                int(found.window * page),
                -(-(found.sliding_window + EVICTION_INTERVAL + page) // page),
            ),
        )
    keeping, windows, states = stage.keeping
    groups = []
    if stage.full:
        groups.append(
            PoolGroup("full", keeping, page, stage.full * page, -(-length // (page * arguments.dcp)))
        )
    if stage.window:
        groups.append(
            PoolGroup("window", windows, page, stage.window * page, _window_held(pools, length) // page)
        )
    if stage.target.slot:
        groups.append(PoolGroup("state", states, 1, stage.target.slot, arguments.slots_per_request))
    return tuple(groups)
