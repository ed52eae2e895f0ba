"""The refusal of tensor-parallel ranks over which a matrix of the decoder does not divide.

Parallel layers divide evenly or stop (``divide``, an assertion): vllm-project/vllm vllm/distributed/utils.py,
model_executor/layers/linear.py, vocab_parallel_embedding.py; sgl-project/sglang
python/sglang/srt/distributed/utils.py, layers/linear.py, layers/vocab_parallel_embedding.py, and the classes'
own assertions on heads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from kvplan.architectures.weights import served_sources
from kvplan.engines.base import is_assumed
from kvplan.errors import KvplanError, RefusedError
from kvplan.later import later
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Layout
from kvplan.units import round_up
from kvplan.weights.inventory import Dim, Inventory, Split, Tensor
from kvplan.weights.parts import Part, part_of
from kvplan.weights.ranks import Parallel, on_rank

if TYPE_CHECKING:
    from kvplan.architectures import weights as stored
    from kvplan.weights import shares
    from kvplan.weights.ranks import Parallel
else:
    stored = later("kvplan.architectures", "weights")
    shares = later("kvplan.weights", "shares")

_NAMES = {
    "num_attention_heads": "attention heads",
    "num_key_value_heads": "KV heads",
    "vision heads": "attention heads",
    "vocab_size": "words of the vocabulary",
}


def undivided_refusal(
    model: Model, settings: Layout, tp: int, divided: Callable[[int], Parallel]
) -> Refusal | None:
    """The first dimension that the ranks do not divide; None where all do, or where no tensors are known.

    divided: how the weights lie over so many tensor-parallel ranks.
    """
    if tp == 1:
        return None
    try:
        inventory = served_sources(model, settings.quantization).inventory
        if inventory is None:
            return None
        found = uneven(inventory, divided(tp))
        if found is None:
            return None
        fewer = next(ways for ways in range(tp - 1, 0, -1) if uneven(inventory, divided(ways)) is None)
    except (KvplanError, StopIteration):  # weights that are not known are said elsewhere
        return None
    dim, ways = found
    count = (
        round_up(dim.value, divided(tp).vocabulary_multiple) if dim.split is Split.VOCABULARY else dim.value
    )
    what = _NAMES.get(dim.name, f"of {dim.name}")
    message = f"{count:,} {what} cannot be divided over {ways} tensor-parallel ranks"
    return Refusal("tensor-parallel", message, help=(f"--tp {fewer}",))


@lru_cache(maxsize=4096)
def uneven(inventory: Inventory, parallel: Parallel) -> tuple[Dim, int] | None:
    """The first dimension of a decoder's tensor that its ranks do not divide, and how many they are.
    DeepSeek-V4's output groups are divided without an assertion: a rank may be left with none."""
    for tensor in _decoder(inventory):
        part = part_of(tensor.name, tensor.role)
        for dim in (*tensor.rows, *tensor.columns):
            if not _divides(dim, parallel, part):
                return dim, parallel.ways(part)
    return None


def _divides(dim: Dim, parallel: Parallel, part: Part) -> bool:
    try:
        on_rank(dim, parallel, part)
    except RefusedError:
        return False
    return True


@lru_cache(maxsize=1024)
def _decoder(inventory: Inventory) -> tuple[Tensor, ...]:
    """Each kind of tensor once: of the layers, then the vocabulary's tables. Encoders and drafts are left
    out: classes differ in what they divide."""
    layers = (t for tensors in dict.fromkeys(b.tensors for b in inventory.layers) for t in tensors)
    every = dict.fromkeys((*layers, *(entry.tensor for entry in inventory.ends)))
    return tuple(t for t in every if part_of(t.name, t.role) is not Part.TOWER)


def block_refusal(
    model: Model,
    settings: Layout,
    tp: int,
    divided: Callable[[int], Parallel],
    stops: Callable[[shares.Cut, str], bool],
    whole_experts: str,
    *,
    assumed: bool,
) -> Refusal | None:
    """The first cut through weights that share a scale at which the engine's kernels stop, or None.

    divided: how the weights lie over so many tensor-parallel ranks. stops: whether the engine stops at a cut
    of weights of that method. whole_experts: the option that leaves experts whole, "" where it is set.
    assumed: of the matrices whose format is assumed (`kvplan.engines.base.is_assumed`), or of the others.
    """

    def counts(cut: shares.Cut, method: str) -> bool:
        return is_assumed(model, settings, routed=cut.is_expert) is assumed and stops(cut, method)

    found = first_cut(model, settings, tp, divided, counts)
    if found is None:
        return None
    cut, smaller = found
    ways = (f"--tp {smaller}" if smaller else "", whole_experts if cut.is_expert else "")
    return Refusal("tensor-parallel", cut.words, help=tuple(way for way in ways if way))


def first_cut(
    model: Model,
    settings: Layout,
    tp: int,
    divided: Callable[[int], Parallel],
    counts: Callable[[shares.Cut, str], bool],
) -> tuple[shares.Cut, int] | None:
    """(The first cut that counts, the most ranks that divide ``tp`` without one or 0); None without a cut, or
    where no tensors are known. Arguments as in `block_refusal`."""
    try:
        inventory = stored.served_sources(model, settings.quantization).inventory
        if inventory is None or not inventory.quantisation:
            return None
        method = inventory.quantisation

        def first(ranks: int) -> shares.Cut | None:
            return next((cut for cut in shares.cuts(inventory, divided(ranks)) if counts(cut, method)), None)

        cut = first(tp)
        if cut is None:
            return None
        smaller = next((ranks for ranks in range(tp - 1, 0, -1) if tp % ranks == 0 and not first(ranks)), 0)
    except KvplanError:  # weights that are not known, or not divided at all, are said elsewhere
        return None
    return cut, smaller
