"""What vLLM's captured CUDA graphs take."""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.draft_graphs import draft_graphs
from kvplan.engines.vllm.graphs import Captured, captured
from kvplan.engines.vllm.load import Coefficients, Load
from kvplan.results import BudgetLine
from kvplan.units import gib

SUMS_MILLI = 140
"""Of FlashAttention 3's partial sums of one token, in thousandths, what every graph of a layer has: starts on
H100 and H200 estimate 162 KiB a graph with 16 heads and 272 with 64, and none with more was read."""
_SUMS_READ = 32 * 4 * 64 * (128 + 1)
_LATENT_MORE = 900
"""In thousandths: starts of latent attention estimate from half of the constant to nearly twice as much."""


def graph_sums(load: Load) -> int:
    """What FlashAttention 3's partial sums add to every graph of a layer."""
    return min(load.split_bytes, _SUMS_READ) * SUMS_MILLI // 1000


def _sizes(load: Load, known: Coefficients, drafts: int) -> Captured:
    return captured(
        load.max_num_seqs,
        load.max_num_batched_tokens,
        drafts,
        largest=load.largest_graph,
        wide=known.graphs_wide and (load.capability or (0, 0))[0] == 10,
        by_request=known.graphs_by_request,
        apart=known.graphs_apart,
        uniform=load.flashinfer.uniform,
        mode=load.cudagraph_mode,
        fine=load.fine_graphs,
        given=load.graph_sizes,
    )


def graph_line(shape: Shape, load: Load, known: Coefficients, how: str) -> BudgetLine | None:
    """Layers · captured graphs · a constant, and what FlashInfer makes meanwhile; None where nothing is
    estimated or captured."""
    if load.enforce_eager or not known.graph_layer_bytes or not load.graphs_estimated:
        return None
    count = _sizes(load, known, load.drafts)
    if not count.number:
        return None
    apart = bool(known.graph_split_layer_bytes and load.split_bytes)
    indexed = known.graph_indexed_layer_bytes if load.indexed else 0
    latent = indexed or (known.graph_latent_layer_bytes if load.latent else 0)
    each = known.graph_split_layer_bytes if apart else known.graph_layer_bytes
    each = latent or each
    each += graph_sums(load) if apart else 0
    graphs = shape.num_layers * count.number * each
    if load.tensor_parallel_size >= 4 and not indexed:
        graphs = graphs * known.graph_ranks_milli // 1000
    layers = graphs
    margin = known.graph_margin + graphs * (_LATENT_MORE if latent else known.graph_margin_milli) // 1000
    below = known.graph_low_milli if shape.is_multimodal else known.graph_margin_milli
    least = known.graph_margin + graphs * below // 1000
    # The draft's own graphs run with metadata where the model's do not (v1/worker/gpu/spec_decode/dflash/).
    once = int(load.drafts_at_once and load.flashinfer.groups > 0)
    kept = load.flashinfer.kept(load.max_num_batched_tokens, max(count.full, once))
    made = f"{count.piecewise} piecewise, {count.full} full"
    made += f", {gib(kept)} of FlashInfer's buffers" if kept else ""
    sums = count.largest_full * load.split_bytes if apart else 0
    made += f", {gib(sums)} of FlashAttention's partial sums" if sums else ""
    drafts = draft_graphs(shape, load, known, count, _sizes(load, known, 0))
    made += f", {gib(drafts)} of the draft's" if drafts else ""
    margin, least = margin + drafts // 2, least + drafts // 2
    made, graphs = f"{made}; {how}", graphs + kept + sums + drafts
    # V1 takes the larger of the first piecewise and the first full graph, and FlashInfer's buffers lie in the
    # latter alone (profile_cudagraph_memory, max(shared_memory_estimate.values())): they may add nothing.
    # Where TRT-LLM's kernels decode, six starts of eight have them whole.
    least += kept if load.flashinfer.wrappers else 0
    line = BudgetLine("CUDA graphs", graphs, max(0, graphs - least), graphs + margin, made)
    if not load.has_adapters:
        return line
    again = count.piecewise if known.graphs_apart else count.number
    return _with_adapters(line, layers * again // count.number)


def _with_adapters(line: BudgetLine, again: int) -> BudgetLine:
    """Every size is captured with adapters and without (cudagraph_specialize_lora, v1/cudagraph_dispatcher.py
    and v1/worker/gpu/lora_utils.py); buffers and partial sums are there once. again: bytes of the second set.

    Of the V2 runner those of the piecewise graphs: it measures them, and takes full ones beyond the first
    two at a floor (v1/worker/gpu/cudagraph_utils.py, _extrapolate_full_graph_memory). Qwen3-4B on an H100,
    0.30: 1.27 GiB printed, 1.34 so, 0.94 of one set.
    """
    source = f"{line.source}; again with adapters, up to as much"
    return BudgetLine(line.name, line.bytes + again, line.low_bytes, line.high_bytes + line.bytes, source)
