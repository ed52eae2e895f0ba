"""An answer of llama.cpp's own context held beside kvplan's: caches by cells, layers, MiB; states by MiB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvplan.api import make_settings
from kvplan.architectures.config.activation_shape import shape_of
from kvplan.engines.llamacpp.engine import caches_for
from kvplan.engines.llamacpp.memory.compute_buffer import graph_interval
from kvplan.engines.llamacpp.start.models import refusal_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.settings import Settings
from kvplan.units import MIB
from tests.engines.llamacpp_cases import BF16, F16, Q4_0, Q8_0

WORDS = {F16: "f16", BF16: "bf16", Q8_0: "q8_0", Q4_0: "q4_0"}
NEAR = 0.006
"""Half of the last printed digit, and what float32 loses."""


class Caches(NamedTuple):
    """tokens: (cells, layers, MiB) of each cache of tokens, by size; states: MiB."""

    tokens: tuple[tuple[int, int, float], ...]
    states: float


def settings_of(context: Mapping[str, Any]) -> Settings:
    """A context's fields as kvplan's options."""
    types = {f"cache_{name}": WORDS[context[name]] for name in ("type_k", "type_v") if name in context}
    return make_settings(
        tokens=256,
        ctx_size=context["n_ctx"],
        ubatch_size=context["n_ubatch"],
        parallel=context["n_seq_max"],
        kv_unified=context["kv_unified"],
        swa_full=context["swa_full"],
        flash_attn=bool(context["flash_attn_type"]),
        **types,
    )


def ours(model: Model, context: Mapping[str, Any]) -> Caches:
    """What kvplan says of the caches. Raises KvplanError where it refuses."""
    refused = refusal_of(model)
    if refused is not None:
        raise KvplanError(refused.code, refused.message)
    sizes, caches = caches_for(model, settings_of(context))
    tokens, states = [], 0
    for cache in caches:
        size = cache.tensor.bytes(sizes)
        if cache.tensor.group == "state":
            states += size
        elif size:
            tokens.append((cache.tensor.cells(sizes), cache.layers, size / MIB))
    return Caches(tuple(sorted(tokens)), states / MIB)


def theirs(answer: Mapping[str, Any]) -> Caches:
    """What llama.cpp printed: a cache without layers is not there."""
    tokens = [(row[1], row[2], row[0]) for row in answer["caches"] if "K" in row[-1] and row[2]]
    return Caches(tuple(sorted(tokens)), sum(float(row[0]) for row in answer["caches"] if "K" not in row[-1]))


def equal(mine: Caches, said: Caches) -> bool:
    """Cells and layers to the digit, MiB as printed."""
    return (
        [row[:2] for row in mine.tokens] == [row[:2] for row in said.tokens]
        and all(_near(one[2], other[2]) for one, other in zip(mine.tokens, said.tokens, strict=True))
        and _near(mine.states, said.states, times=4)
    )


def _near(one: float, other: float, times: int = 1) -> bool:
    return abs(one - other) <= NEAR * times + 1e-6 * other


def compute_bounds(model: Model, context: Mapping[str, Any]) -> tuple[float, float]:
    """MiB between which kvplan's budget says that the compute buffer is."""
    sizes, _ = caches_for(model, settings_of(context))
    bounds = graph_interval(model, shape_of(model, 2), [sizes], flash_attn=bool(context["flash_attn_type"]))
    return bounds.low_bytes / MIB, bounds.high_bytes / MIB
