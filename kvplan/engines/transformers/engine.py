"""Hugging Face transformers: DynamicCache (and StaticCache on request), tensor by tensor, on one device.

Mirrors huggingface/transformers 5.24.0, src/transformers/cache_utils.py, and what the classes pass to it. The
cache has the model's dtype; it grows by the token and is never rounded to blocks.
"""

from __future__ import annotations

from kvplan.dtypes import kv_dtype, scalar
from kvplan.engines.base import (
    NOTHING,
    Held,
    answer_length,
    encoder_length,
    has_kind,
    held_by,
    layers_with,
    request_tokens,
)
from kvplan.engines.options import EngineOption
from kvplan.engines.transformers.library import element_of, library_terms, part_store
from kvplan.engines.transformers.options import OPTIONS, TransformersOptions
from kvplan.engines.transformers.paged import sized
from kvplan.engines.transformers.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.families import (
    Kind,
    Part,
    Storage,
)
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import EngineRef, ModelRef, PerGpu, Request, SizeResult, Total, plain_number
from kvplan.settings import Settings
from kvplan.terms import Grows, Term
from kvplan.terms import Part as Waiting

# Classes that fail with a StaticCache, or that bring a cache of their own which ignores it (measured).
NO_STATIC_CACHE = frozenset(
    {
        *("cpmant", "deepseek_v4", "inkling2_text", "minimax", "prophetnet", "musicgen", "musicgen_decoder"),
        *("musicgen_melody", "musicgen_melody_decoder", "reformer", "rwkv", "unlimited_ocr_text"),
        *("xlnet", "xlstm"),
    }
)
# What grows token by token beside a StaticCache.
GROWS_IN_STATIC = frozenset({"index_positions"})
_ONE_DEVICE = ("tensor_parallel_size", "pipeline_parallel_size", "decode_context_parallel_size")
_FOLLOWS_MODEL = ("kv_cache_dtype", "mamba_cache_dtype", "mamba_ssm_cache_dtype")
_NO_MEANING = (
    "kv_cache_memory",
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "num_gpu_blocks_override",
)


class Transformers:
    """Engine ``transformers``."""

    name = "transformers"
    versions: tuple[str, ...] = ("4.57", "5.0", "5.5", "5.10", "5.14", "5.15", "5.20", "5.23", "5.24")
    options: tuple[EngineOption, ...] = OPTIONS

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Sum of numel * element size of all cache and state tensors; counters are left out."""
        own = TransformersOptions.of(settings)
        check(settings, own)
        if own.continuous_batching:
            return sized(model, settings, own, version)
        element, warnings = element_of(model, settings)
        static = settings.cache_implementation == "static"
        base = Storage(
            kv=kv_dtype(element.name),
            dtype=element,
            conv_state=element,
            index_key=kv_dtype(element.name),
            conv_columns_less=0,  # all conv_kernel columns
            window_less=0 if static else 1,  # a slice of the newest window - 1, chunks too
        )
        # Measured on nine releases, 4.57.1 to 5.24.0.
        rules = rules_of(version)

        def terms_of(part: Part) -> tuple[Term, ...]:
            return library_terms(part, part_store(part, base), rules)

        tokens = request_tokens(model, settings)
        encoder_tokens, warning = encoder_length(model, settings, tokens)
        allocated = _allocated(model, settings, tokens) if static else tokens
        held, pinned = NOTHING, 0
        for layer, count in model.distinct().items():
            terms = tuple(term for part in layer.parts for term in terms_of(part))
            held += _held(terms, tokens, allocated, encoder_tokens, static).times(count)
            pinned += count * _pinned_bytes(terms, tokens, encoder_tokens)
        peak = held.bytes if static else max(held.bytes, pinned)
        requests = settings.requests
        return SizeResult(
            model=ModelRef(model.id, model.source),
            engine=EngineRef(self.name, version),
            settings={
                "dtype": element.name,
                "kv_cache_dtype": element.name,
                "cache_implementation": settings.cache_implementation,
                **({"max_cache_len": allocated} if static else {}),
            },
            request=Request(tokens, encoder_tokens, requests, answer_length(settings, tokens)),
            per_gpu=PerGpu(
                held.bytes,
                held.bytes * requests,
                peak * requests,
                plain_number(held.bytes_per_token),
                held.fixed_bytes,
            ),
            total=Total(held.bytes, held.bytes * requests),
            layers=layers_with(model, terms_of),
            warnings=(
                *model.warnings,
                *warnings,
                *([warning] if warning else []),
                *_notes(model, settings, expanded=not rules.latent_kept),
            ),
        )


def _held(terms: tuple[Term, ...], tokens: int, allocated: int, encoder_tokens: int, static: bool) -> Held:
    """A static cache is allocated for its full length: only what lies beside it still grows."""
    if not static:
        return held_by(terms, tokens, encoder_tokens)
    beside = tuple(term for term in terms if term.name in GROWS_IN_STATIC)
    fixed = sum(term.bytes_at(allocated, encoder_tokens) for term in terms if term not in beside)
    return Held(fixed, NOTHING.bytes_per_token, fixed) + held_by(beside, tokens, encoder_tokens)


def _pinned_bytes(terms: tuple[Term, ...], tokens: int, encoder_tokens: int) -> int:
    """Bytes that the tensors keep alive right after a prefill of all tokens.

    A window is a slice of the whole prompt's tensor, and so are the tokens that wait for compression.
    """
    pinned = 0
    for term in terms:
        if term.part is Waiting.WAITING:
            pinned += tokens * term.entry_bytes if term.entries(tokens) else 0
        elif term.grows is Grows.TOKEN and term.keep_last is not None:
            pinned += replace(term, keep_last=None).bytes_at(tokens, encoder_tokens)
        else:
            pinned += term.bytes_at(tokens, encoder_tokens)
    return pinned


def check(settings: Settings, own: TransformersOptions) -> None:
    """Refuse what transformers' caches cannot do. Raises KvplanError(unsupported-setting)."""
    for name in _ONE_DEVICE:
        if getattr(settings, name) > 1:
            raise KvplanError(
                "unsupported-setting",
                f"engine transformers with {name} {getattr(settings, name)}: its cache is on one device",
                help=(f"leave {name} at 1", "for parallel serving ask --engine vllm"),
            )
    element = None if settings.dtype == "auto" else scalar(settings.dtype).name
    for name in _FOLLOWS_MODEL:
        word = getattr(settings, name)
        if word != "auto" and word.removeprefix("torch.") != element:
            raise KvplanError(
                "unsupported-setting",
                f"engine transformers with {name} {word!r}: its cache has the model's dtype",
                help=(f"leave {name} at auto", "set the model's dtype with --dtype bfloat16"),
            )
    if settings.speculative_method or settings.num_speculative_tokens:
        raise KvplanError(
            "unsupported-setting",
            "engine transformers with a speculative method: the draft model has a cache of its own",
            help="size the draft model by itself",
        )
    if settings.cache_implementation not in ("dynamic", "static"):
        paged = settings.cache_implementation == "paged"
        raise KvplanError(
            "unsupported-setting",
            f"engine transformers with cache_implementation {settings.cache_implementation!r}",
            help="--continuous-batching" if paged else "cache_implementation is dynamic or static",
        )
    if own.continuous_batching and settings.cache_implementation != "dynamic":
        raise KvplanError(
            "unsupported-setting",
            "continuous batching has a cache of its own",
            help="leave cache_implementation out",
        )


def _allocated(model: Model, settings: Settings, tokens: int) -> int:
    """max_cache_len of a StaticCache: max_model_len where given, else the request's own length."""
    if model.model_type in NO_STATIC_CACHE:
        raise KvplanError(
            "unsupported-setting",
            f"{model.model_type}: the class does not work with a static cache",
            help="leave cache_implementation at dynamic",
        )
    length = settings.max_model_len or tokens
    if length < tokens:
        raise KvplanError(
            "unsupported-setting",
            f"a static cache of {length:,} tokens cannot hold a request of {tokens:,}",
            help=f"give max_model_len {tokens} or more",
        )
    return length


def _notes(model: Model, settings: Settings, *, expanded: bool) -> list[str]:
    """Notes for the reader: the release that changed a rule, and settings without a meaning here."""
    notes = []
    if model.no_cache_reason:
        notes.append(model.no_cache_reason)
    if has_kind(model, Kind.MLA):
        now = (
            "every head's K and V are kept, as before transformers 5.15" if expanded else "the latent is kept"
        )
        notes.append(f"MLA: {now}; 5.15.0 changed the cache from K and V of every head to the latent")
    if model.kv_cache_scheme:
        notes.append(
            f"the checkpoint's KV cache scheme ({model.kv_cache_scheme}) is not used by transformers' cache"
        )
    ignored = [name for name in _NO_MEANING if getattr(settings, name) is not None]
    if ignored:
        notes.append(
            f"transformers has no block pool: {', '.join(ignored)} not used; --continuous-batching has one"
        )
    return notes
