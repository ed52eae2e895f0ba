"""The answer of transformers' continuous batching: the pool in a memory, and what a request takes of it.

huggingface/transformers 5.24.0 generation/continuous_batching: group_layers_by_attn_type (cache.py) takes
layers of full and of sliding attention and nothing else, all with the widths of the config: a class whose
layers keep something else cannot be served so (initialization.py has the defaults).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from kvplan.architectures.config.text_part import find_text_part
from kvplan.architectures.config.view import split_quant
from kvplan.dtypes import Packing, kv_dtype
from kvplan.engines.base import (
    NOTHING,
    NOTHING_HELD,
    answer_length,
    held_by,
    layers_with,
    request_tokens,
)
from kvplan.engines.transformers.library import element_of, library_terms, part_store
from kvplan.engines.transformers.options import TransformersOptions
from kvplan.engines.transformers.sectors import (
    BATCH_TOKENS,
    LEAST_PAGE,
    MOST_REQUESTS,
    PAGE_SIZE,
    TABLE_BLOCKS,
    Batch,
    Geometry,
    Kind,
    running,
)
from kvplan.engines.transformers.versions import Rules, rules_of
from kvplan.errors import KvplanError
from kvplan.families import FullAttention, Part, SlidingWindow, Storage
from kvplan.model import Layer, Model
from kvplan.record import record
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
from kvplan.settings import Serving, Settings
from kvplan.terms import Term

WHOLE_LOGITS = frozenset(
    """gemma4_assistant gemma4_unified_assistant musicgen musicgen_melody prophetnet trocr whisper xlstm
    blip-2 instructblip instructblipvideo minicpm_ocr minicpmv4_6 nemotron_h_omni pix2struct
    qwen2_5_omni_thinker qwen3_omni_moe_thinker udop video_llama_3 vision-encoder-decoder""".split()
)
"""Types whose class has no logits_to_keep (transformers 5.24.0, by its forward's signature)."""
OTHER_HEADS = frozenset({"step3p5", "step3p7"})
"""Types whose config has no one number of heads, which the library reads (transformers 5.24.0)."""
FLASH = ("flash_attention_2", "flash_attention_3")


class NotPagedError(Exception):
    """Why PagedAttentionCache does not serve the model."""


@record()
class Paged:
    """Everything fixed before a memory is known."""

    geometry: Geometry
    batch: Batch
    element: Packing
    order: tuple[int, ...]
    """each layer's kind, by its place in ``geometry.kinds``"""


def paged_of(model: Model, settings: Serving, own: TransformersOptions) -> Paged:
    """Raises NotPagedError, KvplanError(bad-setting)."""
    element, _ = element_of(model, settings)
    page = settings.block_size or PAGE_SIZE
    if page < LEAST_PAGE:
        raise KvplanError("bad-setting", f"page_size is {page}", help=f"it is {LEAST_PAGE} or more")
    kinds: dict[int | None, int] = {}
    order: list[int] = []
    widths: set[tuple[int, int]] = set()
    for layer in model.layers():
        heads, head_dim, window = _kept(layer)
        widths.add((heads, head_dim))
        kinds[window] = kinds.get(window, 0) + 1
        order.append(list(kinds).index(window))
    if len(widths) != 1:
        said = "layers of several widths" if widths else "no layer that keeps keys and values"
        raise NotPagedError(f"{said}, and its pages have one width")
    if len([window for window in kinds if window is not None]) > 1:
        raise NotPagedError("windows of several lengths")
    ((num_kv_heads, head_dim),) = widths
    _check_config(model, num_kv_heads, head_dim)
    geometry = Geometry(
        tuple(Kind(count, window) for window, count in kinds.items()),
        page,
        2 * element.bytes_for(num_kv_heads * head_dim) * page,
    )
    return Paged(geometry, _batch(model, settings, own, element, geometry), element, tuple(order))


def _check_config(model: Model, num_kv_heads: int, head_dim: int) -> None:
    """The pages have the config's own widths (find_num_key_value_heads, find_head_dim in utils.py), whatever
    the class writes. Raises NotPagedError where they differ."""
    if model.model_type in OTHER_HEADS:
        raise NotPagedError("its layers have several numbers of heads")
    if not model.config:
        return
    view = find_text_part(split_quant(model.config)[0]).view
    heads = view.optional_integer("num_attention_heads") or model.num_attention_heads
    stated = view.optional_integer("num_key_value_heads") or heads
    width = view.optional_integer("head_dim") or model.hidden_size // max(1, heads)
    if (stated, width) != (num_kv_heads, head_dim):
        raise NotPagedError(
            f"its layers keep {num_kv_heads} heads of {head_dim}, and the pages have the config's"
            f" {stated} of {width}"
        )


_KEPT: dict[type[Part], Callable[[Any], tuple[int, int, int | None]]] = {
    FullAttention: lambda part: (
        part.broadcast_heads or part.num_kv_heads,
        part.head_dim,
        part.library_window,
    ),
    SlidingWindow: lambda part: (part.num_kv_heads, part.head_dim, part.sliding_window),
}
"""(heads, width, window) of the families that pages are made for."""


def _kept(layer: Layer) -> tuple[int, int, int | None]:
    """(heads, width, window) of a layer with one part. Raises NotPagedError."""
    part = layer.parts[0] if len(layer.parts) == 1 else None
    if part is None or type(part) not in _KEPT:
        raise NotPagedError(f"a layer of {layer.family}, and it knows full and sliding attention")
    if part.value_width != part.key_width:
        raise NotPagedError("values of another width than keys")
    return _KEPT[type(part)](part)


def _batch(
    model: Model, settings: Serving, own: TransformersOptions, element: Packing, geometry: Geometry
) -> Batch:
    """The resolved configuration (initialization.py), on a GPU with CUDA graphs."""
    flash = own.attn_implementation in FLASH
    tokens = settings.max_num_batched_tokens or BATCH_TOKENS
    graphs, doubled = own.use_cuda_graph, own.use_async_batching
    only_full = all(kind.window is None for kind in geometry.kinds)
    blocks = own.max_blocks_per_request
    num_kv_heads, head_dim, _ = _kept(next(iter(model.distinct())))
    return Batch(
        tokens=tokens,
        requests=settings.max_num_seqs or MOST_REQUESTS,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        num_heads=model.num_attention_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        element_bytes=element.bytes,
        flash=flash,
        doubled=bool(doubled if doubled is not None else flash and graphs is not False),
        table_blocks=(TABLE_BLOCKS if blocks is None else blocks) if flash and only_full else 0,
        sliced=model.model_type not in WHOLE_LOGITS,
        output_rows=2 if own.return_logprobs else 1,
    )


def refusal_of(model: Model, settings: Settings, own: TransformersOptions, version: str) -> Refusal | Paged:
    """The model as continuous batching sees it, or the reason why it does not start."""
    if not rules_of(version).sectors:
        return Refusal(
            "unknown-rule",
            f"the pool of continuous batching in transformers {version} is not known",
            help=("--engine transformers@5.20 or newer",),
        )
    try:
        return paged_of(model, settings, own)
    except NotPagedError as reason:
        return Refusal(
            "unsupported-model",
            f"continuous batching cannot hold it: {reason}",
            help=("leave --continuous-batching out",),
        )


def sized(model: Model, settings: Settings, own: TransformersOptions, version: str) -> SizeResult:
    """The answer with continuous batching."""
    found = refusal_of(model, settings, own, version)
    tokens = request_tokens(model, settings)
    request = Request(tokens, 0, settings.requests, answer_length(settings, tokens))
    ref = EngineRef("transformers", version)
    element, said = element_of(model, settings)
    shown: dict[str, Any] = {
        "dtype": element.name,
        "kv_cache_dtype": element.name,
        "continuous_batching": True,
    }
    name = ModelRef(model.id, model.source)
    if isinstance(found, Refusal):
        return SizeResult(name, ref, shown, request, *NOTHING_HELD, (), None, found, model.warnings)
    geometry, batch = found.geometry, found.batch
    shown |= {
        "page_size": geometry.page,
        "max_batch_tokens": batch.tokens,
        "max_requests_per_batch": min(batch.requests, batch.tokens),
        "attn_implementation": own.attn_implementation,
        "use_async_batching": batch.doubled,
        "max_blocks_per_request": batch.table_blocks,
    }
    layers, growth = _terms(model, found, rules_of(version))
    held = geometry.request_bytes(tokens)
    pool = _pool(geometry, batch, settings, request)
    refusal = None if pool is None else _too_small(geometry, pool, tokens)
    if pool is not None:
        shown |= {"num_blocks": geometry.num_blocks_of(pool.num_blocks), "num_sectors": pool.num_blocks}
    per_gpu = PerGpu(
        held, held * settings.requests, held * settings.requests, plain_number(growth(tokens)), 0
    )
    total = Total(held, held * settings.requests)
    warnings = (*model.warnings, *said)
    return SizeResult(name, ref, shown, request, per_gpu, total, layers, pool, refusal, warnings)


def _terms(model: Model, paged: Paged, rules: Rules) -> tuple[tuple[LayerTerms, ...], Any]:
    """Each layer's terms, and bytes a token at a length. A window's ring keeps all of its tokens."""
    element = paged.element
    base = Storage(kv=kv_dtype(element.name), dtype=element, conv_state=element, window_less=0)

    def terms_of(part: Any) -> tuple[Term, ...]:
        return library_terms(part, part_store(part, base), rules)

    def growth(tokens: int) -> Any:
        return sum(
            (
                held_by(terms_of(layer.parts[0]), tokens, 0).times(count).bytes_per_token
                for layer, count in model.distinct().items()
            ),
            start=NOTHING.bytes_per_token,
        )

    return layers_with(model, terms_of), growth


def sectors_for(geometry: Geometry, settings: Settings) -> int | None:
    """The sectors of a stated num_blocks or of the memory; None where neither is known."""
    if settings.num_gpu_blocks_override is not None:
        return geometry.sectors_of(settings.num_gpu_blocks_override)
    return None if settings.kv_cache_memory is None else settings.kv_cache_memory // geometry.sector_bytes


def _pool(geometry: Geometry, batch: Batch, settings: Settings, request: Request) -> Pool | None:
    sectors = sectors_for(geometry, settings)
    if sectors is None:
        return None
    tokens, most = request.tokens, min(batch.requests, batch.tokens)
    fits = geometry.fitting(sectors, tokens)
    capped = min(fits, most)
    size = geometry.sector_bytes
    groups = tuple(
        PoolGroup(
            "full_attention" if kind.window is None else "sliding_attention",
            kind.layers,
            geometry.page,
            geometry.page_bytes,
            kind.blocks(tokens, geometry.page),
        )
        for kind in geometry.kinds
    )
    one = geometry.request_bytes(tokens)
    return Pool(
        bytes=sectors * size,
        bytes_per_block=size,
        num_blocks=sectors,
        groups=groups,
        kv_tokens=geometry.num_blocks_of(sectors) * geometry.page,
        max_concurrency=sectors * size / one if one else 0.0,
        max_requests=capped,
        requests_that_fit=fits,
        max_num_seqs=most,
        max_running=_running(geometry, sectors, batch, tokens, request.answer_tokens, capped),
    )


@lru_cache(maxsize=1024)
def _running(geometry: Geometry, sectors: int, batch: Batch, tokens: int, answer: int, arriving: int) -> int:
    return running(geometry, sectors, batch, tokens, answer, arriving) if arriving else 0


def _too_small(geometry: Geometry, pool: Pool, tokens: int) -> Refusal | None:
    """Not one request: the library starts, and fails it."""
    if pool.requests_that_fit:
        return None
    low, high = 0, tokens
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if geometry.fitting(pool.num_blocks, middle) else (low, middle)
    return Refusal(
        "not-enough-memory",
        f"a request of {tokens:,} tokens does not fit {pool.num_blocks:,} sectors of"
        f" {pool.bytes_per_block:,} B",
        largest_max_model_len=low or None,
    )
