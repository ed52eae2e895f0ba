"""Bytes that a token of one request reads, place by place: matrices, its experts, its part of the cache.

ggml-org/llama.cpp 0.5.0: every tensor of a layer is multiplied once a token; of routed experts those that are
chosen (``ggml_mul_mat_id``), of the embedding one row; attention reads the cells of the request so far, of a
window those that it keeps, a state is read and written.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.architectures.config.activation_shape import num_experts, shape_of
from kvplan.engines.llamacpp.budget import dealt_tensors
from kvplan.engines.llamacpp.cache_layout.caches import PAD, Cache, Context
from kvplan.engines.llamacpp.cache_layout.pool import machine_of
from kvplan.engines.llamacpp.model_options import options_of
from kvplan.engines.llamacpp.start.cache_types import store_for
from kvplan.errors import RefusedError
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.settings import Serving
from kvplan.units import round_up


class Reads(NamedTuple):
    """Bytes that one token reads at one place, and the kernels' occasions there.

    weights: of matrices that every token passes. experts: of the routed experts that one passes. cache: of
    cells and states. layers: whose matrices lie there, with experts elsewhere or here. routed: whose experts
    do.
    """

    weights: int
    experts: int
    cache: int
    layers: int
    routed: int

    @property
    def bytes(self) -> int:
        return self.weights + self.experts + self.cache


def reads(model: Model, settings: Serving, tokens: int) -> tuple[Reads, ...]:
    """Of each GPU, then of the host, with ``tokens`` in the cache of the one request that runs.

    Raises KvplanError(bad-setting | no-weights): the tensors, or how many experts a token passes, are not
    known."""
    options = options_of(model, settings)
    count = settings.pipeline_parallel_size
    share = _chosen(model)
    weights, experts = [0] * (count + 1), [Fraction(0)] * (count + 1)
    layers: list[set[int]] = [set() for _ in range(count + 1)]
    routed: list[set[int]] = [set() for _ in range(count + 1)]
    for one in dealt_tensors(model, settings, options):
        at = count if one.device is None else one.device
        if one.is_expert:
            if share is None:
                raise RefusedError(
                    "no-weights", f"how many experts a token of {model.id} passes is not known"
                )
            experts[at] += one.bytes * share
            routed[at].add(one.layer or 0)
        elif one.is_multiplied:
            weights[at] += one.bytes
            if one.layer is not None:
                layers[at].add(one.layer)
    machine = machine_of(model, store_for(model, settings, options), settings, options)
    cells = round_up(max(tokens, 1), PAD)
    # Of a window the cells that it keeps are read, not those that a batch adds.
    context = Context(1, 1, cells, 0, options.swa_full)
    caches = [*(_read(stage, context) for stage in machine.stages), _read(machine.host, context)]
    return tuple(
        Reads(weights[at], int(experts[at]), caches[at], len(layers[at]), len(routed[at]))
        for at in range(count + 1)
    )


def _chosen(model: Model) -> Fraction | None:
    """Of a layer's routed experts the share that a token passes; None where nobody says."""
    each, every = shape_of(model, 2).experts_per_token, num_experts(model)
    return Fraction(each, every) if each and every else None


def _read(caches: tuple[Cache, ...], context: Context) -> int:
    """Bytes of cells, and twice those of states."""
    return sum(cache.tensor.bytes(context) * (2 if cache.tensor.group == "state" else 1) for cache in caches)
