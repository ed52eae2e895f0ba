"""SGLang's defaults by the memory of the GPU, and its automatic ``mem_fraction_static``.

sgl-project/sglang 0.5.23 arg_groups/memory_hook.py (handle_gpu_memory_settings, reserve_for_graph_mb) and
arg_groups/cuda_graph_hook.py (generate_prefill_cuda_graph_batch_sizes). Pure: whole MiB in, exact fractions
out.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.record import record
from kvplan.units import KIB, ceil_div

MAX_PREFILL_TOKENS = 16384
MLA_GRAPH_RESERVE = 1536
DEEPEP_PREFILL = 2048
FLOOR = 10 * KIB
FLOOR_FROM = 60 * KIB


@record()
class Capacity:
    """chunked_prefill_size and the largest decode graph, for fewer than 4 tensor-parallel ranks and wide."""

    chunked_prefill_size: int
    graph_batch: int
    graph_batch_wide: int


UNKNOWN = Capacity(4096, 160, 160)


def _since_0_5_3(small: Capacity) -> tuple[tuple[int, Capacity], ...]:
    """small: of 20 to 35 GiB, which changed later."""
    return (
        (20 * KIB, Capacity(2048, 8, 8)),
        (35 * KIB, small),
        (60 * KIB, Capacity(4096, 32, 160)),
        (160 * KIB, Capacity(8192, 256, 512)),
    )


_BY_MEMORY: dict[str, tuple[tuple[int, Capacity], ...]] = {
    "0.4.6": ((25_000, Capacity(2048, 8, 80)), (96 * KIB + 1, Capacity(8192, 160, 160))),
    "0.4.7": (
        (35 * KIB, Capacity(2048, 8, 80)),
        (90 * KIB + 1, Capacity(8192, 160, 160)),
        (160_001, Capacity(8192, 256, 256)),
    ),
    "0.5.3": _since_0_5_3(Capacity(2048, 16, 80)),
    "0.5.4": _since_0_5_3(Capacity(2048, 24, 80)),
    "0.5.20": _since_0_5_3(Capacity(4096, 48, 160)),
}
"""Since which release → (below so many MiB, defaults). Until 0.5.2 the graphs are those of
cuda_graph_runner.py (get_batch_sizes_to_capture), which the pool of requests bounds."""
_LARGEST = {"0.4.6": Capacity(8192, 256, 256)}
NEWEST = "0.5.20"


def capacity_for(gpu_mem_mib: int | None, *, table: str = NEWEST) -> Capacity:
    """The row for a GPU of so many MiB; None where the size is not known. table: since which release."""
    if gpu_mem_mib is None:
        return UNKNOWN
    for below, capacity in _BY_MEMORY[table]:
        if gpu_mem_mib < below:
            return capacity
    return _LARGEST.get(table, Capacity(16384, 512, 512))


def graph_max_batch(
    gpu_mem_mib: int | None, tp: int, max_running_requests: int | None = None, *, table: str = NEWEST
) -> int:
    """The largest batch with a decode graph; an explicit --max-running-requests bounds it."""
    capacity = capacity_for(gpu_mem_mib, table=table)
    batch = capacity.graph_batch if tp < 4 else capacity.graph_batch_wide
    return batch if max_running_requests is None else min(batch, max_running_requests)


_PREFILL_GRAPHS = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256))
_PREFILL_GRAPHS_ON = (4608, 512)
"""Token counts of prefill graphs: first, last and step; beyond the last one every 512."""


def prefill_graph_sizes(largest: int) -> list[int]:
    """Token counts for which a prefill graph is captured."""
    first, step = _PREFILL_GRAPHS_ON
    steps = (*_PREFILL_GRAPHS, (first, largest, step))
    return [size for begin, end, by in steps for size in range(begin, min(end, largest) + 1, by)]


def prefill_graph_count(largest: int) -> int:
    """How many these are: counted, as a size may be any number."""
    first, step = _PREFILL_GRAPHS_ON
    return len(prefill_graph_sizes(min(largest, first - 1))) + max(0, (largest - first) // step + 1)


@record()
class Serving:
    """Inputs of the automatic memory fraction next to the GPU."""

    tp: int = 1
    pp: int = 1
    chunked_prefill_size: int | None = None
    max_prefill_tokens: int = MAX_PREFILL_TOKENS
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    mla: bool = False
    decode_graphs: bool = True
    graph_batch: int | None = None
    """the largest decode graph where it is known already"""
    prefill_graphs: bool = True
    prefill_limit: int | None = None
    """the largest prefill graph where something bounds it"""
    attn_dp: int = 0
    """data-parallel size under --enable-dp-attention, else 0"""
    deepep: bool = False
    role: str = "null"
    """null, prefill or decode (disaggregated serving)"""
    draft_tokens: int = 1
    drafts: int = 0
    """MiB kept for a draft model, until 0.5.13"""
    vision: tuple[int, int] | None = None
    """layers and hidden size of the image encoder"""


def automatic_mem_fraction_static(
    gpu_mem_mib: int | None, tp: int = 1, pp: int = 1, serving: Serving | None = None
) -> Fraction:
    """(gpu_mem - reserved) / gpu_mem, rounded to thousandths; 0.95 where the memory is not known.

    ``serving``, where given, carries tp and pp itself. Multiplied for image models by 0.95 · clamp(1 - 0.1 ·
    (layers · hidden² / (24 · 1024²) - 1), 0.8, 1.05), as the engine does, without rounding.
    """
    asked = serving or Serving(tp=tp, pp=pp)
    if gpu_mem_mib is None:
        fraction = Fraction(95, 100)
    else:
        reserved = reserved_mib(gpu_mem_mib, asked)
        # In floating point, as the engine rounds: 0.7875 is a little less there, and becomes 0.787.
        fraction = Fraction(str(round((gpu_mem_mib - float(reserved)) / gpu_mem_mib, 3)))
    return for_images(fraction, asked.vision)


def for_images(fraction: Fraction, vision: tuple[int, int] | None) -> Fraction:
    """adjust_mem_fraction_for_vlm: 0.95 and less the larger the image encoder is."""
    if vision is None:
        return fraction
    layers, hidden = vision
    ratio = Fraction(layers * hidden * hidden, 24 * KIB * KIB)
    factor = 1 - Fraction(1, 10) * (ratio - 1)
    return fraction * Fraction(95, 100) * max(Fraction(8, 10), min(Fraction(105, 100), factor))


def reserved_mib(gpu_mem_mib: int, asked: Serving) -> Fraction:
    """Memory kept free for activations, graphs and parallel groups, in MiB."""
    chunk = asked.chunked_prefill_size
    if chunk is None:
        chunk = capacity_for(gpu_mem_mib).chunked_prefill_size
    batch = asked.graph_batch
    if batch is None:
        batch = graph_max_batch(gpu_mem_mib, asked.tp, asked.max_running_requests)
    if asked.role == "decode":
        tokens = (asked.max_running_requests or batch or 1) * asked.draft_tokens
    else:
        tokens = chunk if chunk > 0 else asked.max_prefill_tokens
    reserved = 512 + Fraction(3, 2) * max(tokens, 2048) + Fraction(asked.tp * asked.pp * KIB, 8)
    reserved += _graphs_mib(asked, chunk, batch)
    if gpu_mem_mib > FLOOR_FROM:
        reserved = max(reserved, Fraction(FLOOR))
    reserved += asked.drafts
    if asked.deepep and asked.role != "prefill" and asked.decode_graphs:
        reserved += 2 * KIB
    return reserved


def _graphs_mib(asked: Serving, chunk: int, batch: int) -> Fraction:
    reserved = Fraction(0)
    if asked.role != "prefill":
        if asked.decode_graphs:
            reserved += 2 * batch
        if asked.attn_dp:
            reserved += 3 * batch * asked.attn_dp
            if batch > 300:
                reserved += Fraction(3, 2) * batch * asked.attn_dp
    if asked.role != "decode" and asked.prefill_graphs:
        reserved += MLA_GRAPH_RESERVE if asked.mla else 8 * _prefill_graphs(asked, chunk)
        if asked.deepep:
            reserved += KIB
    return reserved


def _prefill_graphs(asked: Serving, chunk: int) -> int:
    """How many prefill graphs there are. DeepEP's are those to 2,048 tokens in multiples of 8
    (cuda_graph_hook.py, apply_deepep_adjustments)."""
    limit = asked.prefill_limit
    if asked.deepep:
        return len({ceil_div(size, 8) for size in prefill_graph_sizes(DEEPEP_PREFILL)})
    largest = chunk if asked.max_total_tokens is None else min(chunk, asked.max_total_tokens)
    return prefill_graph_count(largest if limit is None else min(largest, limit))
