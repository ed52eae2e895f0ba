"""Additions of speculation: layers of the cache, places beyond the target's tokens, tokens of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.engines.vllm.start.architectures import keeps_latent
from kvplan.errors import KvplanError
from kvplan.families import FullAttention, Kind, in_window, unwindowed
from kvplan.later import later
from kvplan.model import Layer, Model
from kvplan.record import replace
from kvplan.settings import EAGLE_LIKE, HEAD_METHODS, LOOKUP_METHODS, Layout

if TYPE_CHECKING:
    from kvplan.architectures import heads as borrowing
else:
    borrowing = later("kvplan.architectures", "heads")

DRAFT_KINDS = frozenset({Kind.FULL, Kind.SLIDING, Kind.MLA})
NO_LAYERS = (*LOOKUP_METHODS, "draft_model", "medusa", "mlp_speculator")
"""Methods that use none of the model's own prediction layers."""
AHEAD = (*EAGLE_LIKE, "draft_model", "ngram_gpu")
"""Methods that every runner schedules ahead of (vllm/config/vllm.py)."""
AT_ONCE = ("dflash", "dspark")
"""Methods that propose all tokens in one pass."""
ONE_STEP = {"dspark": 2}
"""Logits of a request that a step needs beside all drafts': DSpark's Markov head goes over them one
by one, a bias and the sum (v1/worker/gpu/spec_decode/dspark/speculator.py)."""
DRAFTING: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    **dict.fromkeys(("eagle", "eagle3", "mtp"), ((1, 0), (0, 0))),
    "draft_model": ((1, 0), (0, 1)),
    "dflash": ((1, 1), (1, 0)),
    "dspark": ((1, 0), (1, -1)),
}
"""Of methods whose drafter writes K and V beyond the target's tokens: (a, b) of a · drafts + b places that it
keeps beyond (vllm/config/vllm.py, num_lookahead_tokens), and of a · drafts + b tokens of a step's budget that
a request takes besides (vllm/config/speculative.py, max_num_new_slots_for_drafting)."""


_DSPARK_LAYERS = 2
"""Of the draft that DeepSeek-V4's checkpoints carry, each like the prediction layer: as many as the memory of
the one start that was read (`kvplan.engines.budget.drafts`)."""
_DFLASH_LAYERS, _DFLASH_WIDTH = 5, 128
"""Of the published drafts of dense targets, which are Qwen3's whatever the target is
(z-lab/Qwen3-4B-DFlash-b16, z-lab/Qwen3.6-27B-DFlash)."""


def beyond(method: str | None, drafts: int) -> tuple[int, int]:
    """`DRAFTING` of so many drafts: places beyond the target's, and tokens of a step's budget besides."""
    (per, more), (each, base) = DRAFTING.get(method or "", ((0, 0), (0, 0)))
    return (per * drafts + more, each * drafts + base) if drafts else (0, 0)


def head_layer(model: Model) -> tuple[Layer, ...]:
    """The layer of an EAGLE head that nobody named: one like the target's first that keeps every token."""
    beside = (Kind.STATE, Kind.CROSS)
    for kinds in ((Kind.FULL, Kind.MLA), (Kind.SLIDING, Kind.CHUNKED)):
        for run in model.runs:
            if any(part.kind in kinds for part in run.layer.parts):
                return (Layer(tuple(part for part in run.layer.parts if part.kind not in beside)),)
    return ()


def draft_layers_of(model: Model, settings: Layout, *, windowed: bool) -> tuple[Layer, ...]:
    """Layers that speculation adds to the cache: a separate draft's, or the model's own prediction layers.

    vllm/v1/spec_decode/: a draft model's attention layers are registered beside the target's. windowed:
    DFlash's have windows where their config says so (model_executor/models/qwen3_dflash.py since 0.25); until
    then they keep every token. Raises KvplanError(unknown-rule) for drafts that do not keep K and V of every
    head.
    """
    if not settings.num_speculative_tokens or settings.speculative_method is None:
        return ()
    draft = settings.speculative_model
    if settings.speculative_method == "mtp" and model.architecture in borrowing.ASSISTED:
        return ()
    if draft is None:
        if settings.speculative_method in HEAD_METHODS:
            return head_layer(model)
        if settings.speculative_method == "dflash":
            return _dflash_layers(model)
        if settings.speculative_method == "dspark":
            return model.draft_layers * _DSPARK_LAYERS
        return () if settings.speculative_method in NO_LAYERS else model.draft_layers
    layers = tuple(draft.layers())
    if settings.speculative_method == "dflash" and not windowed:
        layers = tuple(map(_unwindowed, layers))
    kinds = {part.kind for layer in layers for part in layer.parts}
    if settings.pipeline_parallel_size > 1 and settings.speculative_method == "draft_model":
        raise KvplanError(
            "unknown-rule",
            "what vLLM keeps of a draft model beside a pipeline is not known: it divides the draft too",
            help="--pp 1",
        )
    latent = Kind.MLA in kinds and not (keeps_latent(model) and keeps_latent(draft))
    if latent or not kinds <= DRAFT_KINDS:
        raise KvplanError(
            "unknown-rule",
            f"how vLLM lays out the cache of {draft.id} beside {model.id} is not known",
            help="give a draft of plain attention layers",
        )
    return _in_the_models_window(model, layers)


def _dflash_layers(model: Model) -> tuple[Layer, ...]:
    """The layers of a DFlash draft that nobody named: Qwen3's, as wide in K and V as the target's first that
    keeps every token, without windows."""
    for layer in head_layer(model):
        for part in layer.parts:
            if part.kind is Kind.FULL or part.kind is Kind.SLIDING:
                heads = max(1, part.num_kv_heads * part.head_dim // _DFLASH_WIDTH)
                return (Layer((FullAttention(heads, _DFLASH_WIDTH),)),) * _DFLASH_LAYERS
    return head_layer(model)


def _unwindowed(layer: Layer) -> Layer:
    return replace(layer, parts=tuple(map(unwindowed, layer.parts)))


def _in_the_models_window(model: Model, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """A layer that states no window takes the cache's, which is the model's where all of its layers have one
    (vllm/model_executor/layers/attention/attention.py: cache_config.sliding_window)."""
    kept = [part for run in model.runs for part in run.layer.parts if part.kind is not Kind.NONE]
    windows = {part.window if part.kind is Kind.SLIDING else None for part in kept}
    window = windows.pop() if len(windows) == 1 else None
    if window is None:
        return layers
    return tuple(
        replace(layer, parts=tuple(in_window(part, window) for part in layer.parts)) for layer in layers
    )


def retained(model: Model, settings: Layout) -> int:
    """Tokens below a window that a chain of several draft modules still reads: modules in use - 1.

    vllm/config/speculative.py, use_multi_module_mtp: min(draft layers, draft tokens) > 1.
    """
    if settings.speculative_method != "mtp":
        return 0
    modules = min(len(model.draft_layers), settings.num_speculative_tokens)
    return settings.num_speculative_tokens - 1 if modules > 1 else 0
