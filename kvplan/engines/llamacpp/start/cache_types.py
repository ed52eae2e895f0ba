"""Which type K, V and index keys have, and which pairs llama.cpp refuses (src/llama-context.cpp)."""

from __future__ import annotations

from functools import lru_cache

from kvplan.dtypes import FLOAT32, KvDtype, kv_dtype
from kvplan.engines.base import part_terms
from kvplan.engines.llamacpp.options import CACHE_TYPES, LlamacppOptions
from kvplan.engines.llamacpp.start.models import VALUE_UNSAID, name_of, uses_flash
from kvplan.errors import KvplanError
from kvplan.families import Kind, Storage
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import Serving
from kvplan.terms import Grows

_GGML_WORDS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def ggml_word(word: str) -> str:
    """A cache type as llama-server writes it: ``f16`` for float16, ``q8_0``."""
    name = kv_dtype(word).name
    return _GGML_WORDS.get(name, name)


def store_for(model: Model, settings: Serving, options: LlamacppOptions) -> Storage:
    """f16 unless --cache-type-k/v (or --kv-cache-dtype for both) say otherwise; states are always f32."""
    both = "f16" if settings.kv_cache_dtype == "auto" else settings.kv_cache_dtype
    key, value = options.cache_type_k or both, options.cache_type_v or both
    known = {kv_dtype(word).name for word in CACHE_TYPES}
    for word in (key, value):
        if kv_dtype(word).name not in known:
            raise KvplanError(
                "unsupported-dtype",
                f"llama.cpp has no cache type {word!r}",
                help="use q8_0; known: " + ", ".join(CACHE_TYPES),
            )
    if kv_dtype(value).value.scale_bytes and not uses_flash(model, options.flash_attn):
        ways = ("leave flash_attn on", "use cache_type_v f16")
        raise KvplanError(
            "unsupported-dtype",
            f"a V cache of {value} needs flash attention",
            help=ways[1:] if options.flash_attn else ways,
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
    store = Storage(
        kv=_mixed(key, value),
        dtype=FLOAT32,
        conv_state=FLOAT32,
        recurrent_state=FLOAT32,
        index_key=kv_dtype(key),
    )
    _check_widths(model, store, key, value)
    if name_of(model) in VALUE_UNSAID and model.num_attention_heads:
        width = model.hidden_size // model.num_attention_heads
        elements = store.kv.value_packing(width).elements
        if width % elements:
            raise _not_whole(value, elements, "hidden_size / heads", width)
    return store


@lru_cache(maxsize=256)
def _mixed(key: str, value: str) -> KvDtype:
    k, v = kv_dtype(key), kv_dtype(value)
    return k if k == v else replace(k, name=f"{k.name}/{v.name}", value=v.value)


def _check_widths(model: Model, store: Storage, key: str, value: str) -> None:
    """src/llama-context.cpp: a head must be whole blocks of a quantised type."""
    for layer in model.distinct():
        for part in layer.parts:
            for term in part_terms(part, store):
                if (
                    term.grows is not Grows.TOKEN
                    or term.packing.elements == 1
                    or part.kind is Kind.COMPRESSED
                ):
                    continue
                width = term.factors[-1].value
                if width % term.packing.elements:
                    word = value if term.name == "v" else key
                    raise _not_whole(word, term.packing.elements, term.factors[-1].name, width)


def _not_whole(word: str, elements: int, name: str, width: int) -> KvplanError:
    return KvplanError(
        "unsupported-dtype",
        f"{word} stores {elements} numbers in a block, which does not divide {name} {width}",
        help="use f16 or bf16",
    )
