"""The CUDA graphs that vLLM captures, and what it estimates them to take before it has made them.

vllm-project/vllm vllm/config/vllm.py _set_cudagraph_sizes (the sizes), vllm/v1/cudagraph_dispatcher.py
initialize_cudagraph_keys (piecewise graphs of every size, full ones of those that a decode batch can fill);
vllm/v1/worker/gpu_model_runner.py profile_cudagraph_memory: the first of each kind and the second, times how
many follow. The V2 runner returned 0 until 0.29, when it began to measure the piecewise ones and to
extrapolate the full ones (vllm/v1/worker/gpu/cudagraph_utils.py).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kvplan.engines.vllm.options import CUDAGRAPH_MODES
from kvplan.named import NamedTuple
from kvplan.results import BudgetLine
from kvplan.units import ceil_div, gib

if TYPE_CHECKING:
    from kvplan.architectures.config.activation_shape import Shape
    from kvplan.engines.vllm.memory.profile_run import Coefficients, Load

NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE = CUDAGRAPH_MODES
_FINE = 32
LARGEST, LARGEST_WIDE = 512, 1024
"""Tokens of the largest graph; on data-centre Blackwell since 0.28."""


class Captured(NamedTuple):
    """How many graphs of each kind; largest_full: tokens of the largest full one."""

    piecewise: int
    full: int
    largest_full: int = 0

    @property
    def number(self) -> int:
        """Of both kinds."""
        return self.piecewise + self.full


@lru_cache(maxsize=1024)
def captured(
    seqs: int,
    tokens: int,
    drafts: int,
    *,
    largest: int = 0,
    wide: bool = False,
    by_request: bool = False,
    apart: bool = False,
    uniform: bool = True,
    mode: str = FULL_AND_PIECEWISE,
    fine: bool = False,
    given: tuple[int, ...] = (),
) -> Captured:
    """Sizes 1, 2, 4, 8, 16 … 248, 256, 272 … up to twice the decode batch, at most ``LARGEST`` and the batch.

    drafts: tokens proposed for each request; sizes are whole requests' then. largest: as asked for; 0: the
    default. by_request: since 0.29 the grid counts requests too. uniform: the attention kernels take several
    tokens a request in a full graph. mode: which are made; "full" is every size in full. fine: every size up
    to 32 (performance mode ``interactivity``). given: the sizes themselves, where they are asked for.
    """
    if mode == NONE:
        return Captured(0, 0)
    query = 1 + drafts
    by_request = by_request and not largest
    if given:
        return _made({size for size in given if size <= tokens}, seqs, query, apart, uniform, mode)
    largest = min(largest or min(seqs * query * 2, LARGEST_WIDE if wide else LARGEST), tokens)
    sizes = set(_grid(largest)) | (set(range(1, min(largest, _FINE) + 1)) if fine else set())
    if tokens <= largest:
        sizes.add(tokens)
    if by_request and query > 1:
        sizes |= {count * query for count in (*_grid(seqs), seqs) if count * query <= largest}
    elif by_request and seqs <= largest:
        sizes.add(seqs)
    return _made(sizes, seqs, query, apart, uniform, mode)


def _made(sizes: set[int], seqs: int, query: int, apart: bool, uniform: bool, mode: str) -> Captured:
    """Of sizes: those of decode batches in full too. query: tokens of a request in one. apart: the V2 runner
    since 0.25 makes sizes whole requests' of full graphs alone (gpu/cudagraph_utils.py)."""
    if not sizes:
        return Captured(0, 0)
    largest = max(sizes)
    if mode == PIECEWISE or (query > 1 and not uniform):
        return Captured(len(sizes), 0)  # rounded for full decode graphs alone
    whole = {ceil_div(size, query) * query for size in sizes}
    whole = {size for size in whole if size <= largest}
    if not apart:
        sizes = whole = whole or {largest}
    if mode == FULL:
        return Captured(0, len(sizes), max(sizes))
    whole_batches = [size for size in whole if query <= size <= seqs * query]
    piecewise = 0 if mode == FULL_DECODE_ONLY else len(sizes)
    return Captured(piecewise, len(whole_batches), max(whole_batches, default=0))


def _grid(largest: int) -> list[int]:
    small = [size for size in (1, 2, 4) if size <= largest]
    return [*small, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)]


SUMS_MILLI = 140
"""Of FlashAttention 3's partial sums of one token, in thousandths, what every graph of a layer has: starts on
H100 and H200 estimate 162 KiB a graph with 16 heads and 272 with 64, and none with more was read."""
_SUMS_READ = 32 * 4 * 64 * (128 + 1)
_LATENT_MORE = 900
"""In thousandths: starts of latent attention estimate from half of the constant to nearly twice as much."""


def graph_sums(load: Load) -> int:
    """Bytes that FlashAttention 3's partial sums add to every graph of a layer."""
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
    layers = shape.num_layers * count.number * _of_a_layer(load, known)
    if load.tensor_parallel_size >= 4 and not _indexed(load, known):
        layers = layers * known.graph_ranks_milli // 1000
    beside = _beside(shape, load, known, count)
    below = known.graph_low_milli if shape.is_multimodal else known.graph_margin_milli
    above = _LATENT_MORE if _latent(load, known) else known.graph_margin_milli
    least, margin = (
        known.graph_margin + layers * milli // 1000 + beside.drafts // 2 for milli in (below, above)
    )
    # V1 takes the larger of the first piecewise and the first full graph, and FlashInfer's buffers lie in the
    # latter alone (profile_cudagraph_memory, max(shared_memory_estimate.values())): they may add nothing.
    # Where TRT-LLM's kernels decode, six starts of eight have them whole.
    least += beside.flashinfer if load.flashinfer.wrappers else 0
    graphs = layers + sum(beside)
    made = f"{count.piecewise} piecewise, {count.full} full{beside.said}; {how}"
    line = _with_exchange(
        BudgetLine("CUDA graphs", graphs, max(0, graphs - least), graphs + margin, made),
        exchanged(shape, load, count),
        seen=(load.capability or (0, 0))[0] == 10,
    )
    if not load.has_adapters:
        return line
    again = count.piecewise if known.graphs_apart else count.number
    return _with_adapters(line, layers * again // count.number)


def _indexed(load: Load, known: Coefficients) -> int:
    return known.graph_indexed_layer_bytes if load.indexed else 0


def _latent(load: Load, known: Coefficients) -> int:
    """The constant of latent attention; 0 of others."""
    return _indexed(load, known) or (known.graph_latent_layer_bytes if load.latent else 0)


def _of_a_layer(load: Load, known: Coefficients) -> int:
    """Bytes of every graph."""
    if not known.graph_split_layer_bytes or not load.split_bytes:
        return _latent(load, known) or known.graph_layer_bytes
    return (_latent(load, known) or known.graph_split_layer_bytes) + graph_sums(load)


class _Beside(NamedTuple):
    """Bytes beside the graphs of the model's layers."""

    flashinfer: int
    sums: int
    drafts: int

    @property
    def said(self) -> str:
        named = ("FlashInfer's buffers", "FlashAttention's partial sums", "the draft's")
        return "".join(f", {gib(size)} of {what}" for size, what in zip(self, named, strict=True) if size)


def _beside(shape: Shape, load: Load, known: Coefficients, count: Captured) -> _Beside:
    # The draft's own graphs run with metadata where the model's do not (v1/worker/gpu/spec_decode/dflash/).
    once = int(load.drafts_at_once and load.flashinfer.groups > 0)
    kept = load.flashinfer.kept(load.max_num_batched_tokens, max(count.full, once))
    sums = count.largest_full * load.split_bytes if known.graph_split_layer_bytes else 0
    return _Beside(kept, sums, draft_graphs(shape, load, known, count, _sizes(load, known, 0)))


EXCHANGED = "tokens that ranks exchange"
_LIKELY_MILLI, _MOST = 500, 2
"""Copies of the exchanged tokens: three starts (vllm-project/vllm#45178, #53013, a 2.4T model on 16 GB300)
estimate 1.8, 0.43 and 0.54 of them, all on data-centre Blackwell. Elsewhere no such start is known, and
published layouts with data-parallel ranks start: likely none."""


def exchanged(shape: Shape, load: Load, count: Captured) -> int:
    """layers · graphs · their largest batch · data-parallel ranks · hidden · element, bytes; 0 without
    experts that several data-parallel ranks exchange tokens for.

    Every layer's gathered tokens and sums (device_communicators/all2all.py, AgRsAll2AllManager) stay in the
    pool of the graph that is captured; the estimate takes the growth of the second one times all that follow
    (gpu_model_runner.py, profile_cudagraph_memory), though later graphs reuse the blocks.
    """
    # vllm 0.32: of these managers alone dispatch and combine make tensors in each call; DeepEP's, NIXL's and
    # FlashInfer's have buffers of the communicator. Two copies are the most that a layer has; one start of
    # two such ranks estimates none of them (vllm-project/vllm#45150: 1.47 GiB of 86 graphs).
    if load.data_parallel_size == 1 or not shape.experts_per_token:
        return 0
    requests, tokens = load.max_num_seqs * (1 + load.drafts), load.max_num_batched_tokens
    widest = min(load.largest_graph or max(load.graph_sizes, default=min(2 * requests, LARGEST)), tokens)
    rows = max(0, count.piecewise - 1) * widest + max(0, count.full - 1) * count.largest_full
    hidden = shape.expert_hidden or shape.hidden_size
    return shape.num_layers * rows * load.data_parallel_size * hidden * shape.element_bytes


def _with_exchange(line: BudgetLine, once: int, *, seen: bool) -> BudgetLine:
    """From nothing to two copies: none of these starts was measured layer by layer. seen: starts on such
    GPUs are known."""
    if not once:
        return line
    likely = once * _LIKELY_MILLI // 1000 if seen else 0
    source = f"{line.source}; {EXCHANGED}, none to {gib(once * _MOST)}"
    return BudgetLine(line.name, line.bytes + likely, line.low_bytes, line.high_bytes + _MOST * once, source)


def _with_adapters(line: BudgetLine, again: int) -> BudgetLine:
    """Every size is captured with adapters and without (cudagraph_specialize_lora, v1/cudagraph_dispatcher.py
    and v1/worker/gpu/lora_utils.py); buffers and partial sums are there once. again: bytes of the second set.

    Of the V2 runner those of the piecewise graphs: it measures them, and takes full ones beyond the first
    two at a floor (v1/worker/gpu/cudagraph_utils.py, _extrapolate_full_graph_memory). Qwen3-4B on an H100,
    0.30: 1.27 GiB printed, 1.34 so, 0.94 of one set.
    """
    source = f"{line.source}; again with adapters, up to as much"
    return BudgetLine(line.name, line.bytes + again, line.low_bytes, line.high_bytes + line.bytes, source)


HEAD = 32_000
"""draft_vocab_size of the published EAGLE-3 heads."""
_LOGIT, _MAPPED = 6, 2
"""Bytes: as the head leaves it and in float32; as it is mapped to the model's vocabulary."""


def draft_graphs(
    shape: Shape, load: Load, known: Coefficients, count: Captured, of_one_token: Captured
) -> int:
    """graphs · a constant + logits of the widest batch + FlashAttention 3's sums of its tokens, bytes; 0
    where the release does not estimate them, and without a draft that reads hidden states.

    count: the model's own graphs; of_one_token: those of a model without a draft. Read: EAGLE-3 on an H100,
    0.68 GiB of 151 graphs; DFlash on an L4, 0.29, 0.32 to 0.35 GiB where its logits alone have 0.36: the few
    layers of a draft that proposes at once add nothing that shows.
    """
    if not known.draft_graph_bytes or not load.reads_hidden or not load.samples:
        return 0
    next_ones = of_one_token if load.drafts > 1 else Captured(0, 0)
    requests = count.largest_full // (1 + load.drafts)
    if load.drafts_at_once:
        graphs, rows, tokens = 0, requests * load.drafts, count.largest_full
    else:
        graphs = count.number + next_ones.full
        rows = max(next_ones.largest_full, requests)
        tokens = max(next_ones.largest_full, count.largest_full)
    own = min(HEAD, shape.vocab_size)
    logits = own * _LOGIT + shape.vocab_size * _MAPPED if load.own_head else shape.vocab_size * _LOGIT
    return graphs * known.draft_graph_bytes + rows * logits + tokens * load.split_bytes
