"""Which layers of a GGUF file are recurrent, windowed or indexed.

Source: ggml-org/llama.cpp at 0c1e57098, src/models/<architecture>.cpp, src/llama-hparams.cpp
(``set_swa_pattern``) and ``llama_model_base::load_swa_pattern`` in src/llama-model.cpp.
"""

from __future__ import annotations

from kvplan.architectures.config.view import derived
from kvplan.architectures.gguf.table import Architecture, Indexer, Recurrent, Window
from kvplan.architectures.gguf.view import KV_HEADS, WINDOW, GgufView

_PATTERN = "attention.sliding_window_pattern"
_GLM_LONG = 1_048_576


def recurrent_layers(view: GgufView, arch: Architecture) -> list[bool]:
    """For each layer: does it keep a state?"""
    count, trunk = view.block_count, view.trunk
    if arch.recurrent is None:
        return [False] * count
    if arch.recurrent in (Recurrent.ALL, Recurrent.BESIDE):
        return [True] * count
    if arch.recurrent is Recurrent.INTERVAL:
        listed = view.per_layer_flags("attention.recurrent_layers")
        if listed is not None:
            return listed
        interval = view.optional_integer("full_attention_interval") or arch.full_interval
        return [index < trunk and (index + 1) % interval != 0 for index in range(count)]
    heads = view.per_layer(KV_HEADS, lowest=0)
    if heads is None:
        raise view.missing(KV_HEADS)
    wide = [0] * count
    if arch.recurrent is Recurrent.NO_KV_HEADS_NO_FFN:
        wide = view.per_layer("feed_forward_length", lowest=0) or wide
    return [index < trunk and not heads[index] and not wide[index] for index in range(count)]


def windowed_layers(view: GgufView, arch: Architecture, warnings: list[str]) -> tuple[int, list[bool]]:
    """The window's size and, for each layer, whether it has one."""
    count, rule = view.block_count, arch.window
    off = [False] * count
    if rule is None:
        if view.optional_integer(WINDOW, lowest=0):
            why = arch.window_off or f"llama.cpp does not read it for {view.model_type}"
            warnings.append(f"{view.path}{WINDOW} has no effect: {why}")
        return 0, off
    if rule.only_layers is not None and view.trunk != rule.only_layers:
        return 0, off
    size = view.optional_integer(WINDOW, lowest=1 if rule.required else 0)
    if size is None:
        if rule.default is None and rule.required:
            raise view.missing(WINDOW)
        size = rule.default and derived(rule.default, f"{view.model_type}: llama.cpp's default")
    if not size:
        return 0, off
    if rule.fixed is not None:
        size = derived(rule.fixed, f"{view.model_type}: fixed in llama.cpp")
    return size, _pattern(view, rule)


def _pattern(view: GgufView, rule: Window) -> list[bool]:
    """set_swa_pattern of src/llama-hparams.cpp; layers behind the trunk have no window."""
    count, trunk = view.block_count, view.trunk
    listed = None if rule.pattern == 0 else view.layer_flags(_PATTERN, trunk)
    if listed is not None:
        return listed[:trunk] + [False] * (count - trunk)
    if rule.pattern is None:
        raise view.missing(_PATTERN)
    period: int | None = rule.pattern
    if period:
        period = view.optional_integer(_PATTERN, default=period, lowest=0)
    if not period:
        return [index < trunk for index in range(count)]
    if rule.dense_first:
        return [index < trunk and index % period != 0 for index in range(count)]
    return [index < trunk and index % period < period - 1 for index in range(count)]


def indexed_layers(view: GgufView, arch: Architecture) -> list[bool]:
    """For each layer: does it cache index keys?"""
    count, trunk = view.block_count, view.trunk
    if arch.indexer is None:
        return [False] * count
    if arch.indexer is Indexer.AFTER_DENSE:
        first = view.optional_integer("leading_dense_block_count", lowest=0) or 0
        return [index >= first for index in range(count)]
    if arch.indexer is Indexer.OPTIONAL_TYPES and not view.optional_integer(
        "attention.indexer.top_k", lowest=0
    ):
        return [False] * count
    if arch.indexer is not Indexer.ALL:
        listed = view.layer_flags("attention.indexer.types", trunk)
        if listed is not None:
            return listed[:trunk] + [False] * (count - trunk)
        if arch.indexer is Indexer.OPTIONAL_TYPES:
            raise view.missing("attention.indexer.types")
        if arch.indexer is Indexer.GLM and view.integer("context_length") >= _GLM_LONG:
            return [index < 2 or index % 4 == 2 for index in range(count)]
    return [index < trunk for index in range(count)]
