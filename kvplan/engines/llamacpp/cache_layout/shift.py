"""Tokens that llama.cpp drops: --context-shift with --keep, in a slot that is allocated whole.

ggml-org/llama.cpp 0.5.0 tools/server/server-context.cpp: a slot that is full while it generates keeps its
first --keep tokens and drops half of the others; off by default since #15416.
"""

from __future__ import annotations

from kvplan.engines.base import answer_length, has_kind
from kvplan.engines.llamacpp.cache_layout.caches import Context
from kvplan.engines.llamacpp.options import LlamacppOptions
from kvplan.engines.llamacpp.start.models import has_window_cache, name_of
from kvplan.engines.options import RETENTION
from kvplan.engines.retention import accuracy, retention_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Settings

_SEVERAL_POSITIONS = (
    *("qwen2_vl", "qwen2vl", "qwen2_5_vl", "qwen2_5_omni", "qwen3_vl", "qwen3vl", "qwen3_omni", "qwen3tts"),
    *("qwen3_5", "qwen35", "paddleocr", "glm4v", "glm4_6v", "glm_ocr", "hunyuan_vl"),
)
"""How the names of models with M-RoPE begin."""
_ROPE_BY_LAYER = ("step35", "step3p5", "step3p7")


def check_retention(model: Model, options: LlamacppOptions) -> None:
    """Raises KvplanError(unsupported-setting | bad-setting) where a context would not be shifted."""
    retention = retention_of(options)
    if retention is None:
        return
    why, way = _fixed(model, options), f"leave {RETENTION.name} out"
    if options.kv_unified:
        why, way = "a slot of a unified buffer is full only when the whole buffer is", "--no-kv-unified"
    if why is not None:
        raise KvplanError("unsupported-setting", f"llama.cpp would not shift the context: {why}", help=way)
    given, slots = options.ctx_size, options.parallel or 1
    if given is not None and given // slots < retention.kept:
        raise KvplanError(
            "bad-setting",
            f"a slot of {given // slots:,} cells keeps fewer than {retention.kept:,} tokens",
            help=f"--ctx-size {retention.kept * slots}",
        )


def _fixed(model: Model, options: LlamacppOptions) -> str | None:
    """Why the positions of a cache cannot be moved: get_can_shift of src/llama-kv-cache.cpp,
    llama-kv-cache-iswa.cpp and llama-kv-cache-dsv4.cpp; llama_model_rope_type of src/llama-model.cpp."""
    name = name_of(model)
    if name.startswith(_SEVERAL_POSITIONS):
        return f"{model.model_type} has several positions a token (M-RoPE)"
    if name.startswith(_ROPE_BY_LAYER):
        return f"the rotated width of {model.model_type} differs by layer"
    if has_kind(model, Kind.COMPRESSED):
        return "a compressed entry stands for several tokens"
    windows = has_kind(model, Kind.SLIDING, Kind.CHUNKED)
    if windows and has_window_cache(model) and not options.swa_full:
        return f"the windows of {model.model_type} have a shorter cache (--swa-full gives them the same)"
    return None


def never_admitted(slot: int, settings: Settings, tokens: int) -> Refusal | None:
    """A prompt that fills its slot: only what is generated may be longer."""
    prompt = tokens - answer_length(settings, tokens)
    if prompt < slot:
        return None
    return Refusal(
        "request-too-long",
        f"a prompt of {prompt:,} tokens does not fit a slot's {slot:,} cells: the context is shifted"
        " only while an answer is generated",
        largest_max_model_len=slot,
        help=(f"--answer-tokens {tokens - slot + 1}",),
    )


def shifted(options: LlamacppOptions, context: Context, tokens: int) -> tuple[str, ...]:
    """Notes on requests that grow beyond their slot."""
    retention = retention_of(options)
    if retention is None or tokens <= context.cells:
        return ()
    rest = context.cells - retention.sinks
    said = (
        f"llama.cpp allocates all {context.cells:,} cells of a slot; each time they are full it drops half of"
        f" the newest {rest:,} tokens, so that {rest - rest // 2:,} to {rest:,} of them stay"
        f" (--keep {retention.sinks} --context-shift)"
    )
    return said, accuracy(retention)
