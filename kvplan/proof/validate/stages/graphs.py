"""CUDA graphs of the probe's forward pass, captured as a server does: largest first, one shared pool.

What the graphs reserve contains the matrix library's workspace of the stream that captures, as a server's
does; it lies in the graphs' pool and goes back after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvplan.proof.validate.stages.activations import forward
from kvplan.proof.validate.stages.base import Bench, Held
from kvplan.proof.validate.stages.widths import Widths

MOST = 512
_STEP = 8


def batch_sizes(rows: int, most: int = MOST) -> tuple[int, ...]:
    """1, 2, 4, then every eighth up to 256 and every sixteenth up to ``most``, none above ``rows``; largest
    first. As vLLM's default cudagraph_capture_sizes (vllm/config/vllm.py, _set_cudagraph_sizes)."""
    sizes = [1, 2, 4, *range(_STEP, 256, _STEP), *range(256, most + 1, 2 * _STEP)]
    return tuple(sorted({size for size in sizes if size <= max(1, min(rows, most))}, reverse=True))


def capture(bench: Bench, widths: Widths) -> None:
    """Capture, replay each once, measure what stays reserved, let go. Nothing is captured on host memory.

    The budget's line is no prediction of it: that is of all layers with their attention, of which this is the
    half of one. What is left after all are two small tensors of torch's random generator, which a capture
    makes (a segment of 2 MiB).
    """
    device = bench.device
    if not device.is_gpu:
        bench.note("CUDA graphs are not captured: there are none on host memory")
        return
    import torch

    graphs: list[Any] = []
    device.release()
    begun = device.read()
    with Held(device) as held:
        sizes = batch_sizes(widths.rows or widths.tokens)
        _warm_up(held, widths, sizes)
        device.release()
        before = device.read()
        pool = torch.cuda.graph_pool_handle()
        for number, size in enumerate(sizes):
            bench.tick(number, len(sizes))
            graphs.append(_captured(held, widths, size, pool))
        for graph in graphs:
            graph.replay()
        after = device.read()
    bench.figure("graphs_reserved_bytes", None, (after.reserved or 0) - (before.reserved or 0))
    if None not in (before.device, after.device):
        bench.figure("graphs_device_bytes", None, (after.device or 0) - (before.device or 0))
    for graph in graphs:
        graph.reset()
    graphs.clear()
    device.release()
    bench.figure("graphs_left_bytes", None, (device.read().reserved or 0) - (begun.reserved or 0))


def _scaled(widths: Widths, tokens: int) -> Widths:
    from kvplan.record import replace

    return replace(widths, tokens=tokens, rows=0)


def _warm_up(held: Held, widths: Widths, sizes: Sequence[int]) -> None:
    """Every size once before the first capture, as torch.cuda.graph asks for: each has kernels of its own,
    which must be loaded by then. All on one stream, because the matrix library keeps a workspace for each."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for size in sizes:
            _run(held, _scaled(widths, size))
    torch.cuda.current_stream().wait_stream(stream)


def _captured(held: Held, widths: Widths, tokens: int, pool: Any) -> Any:
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        _run(held, _scaled(widths, tokens))
    return graph


def _run(held: Held, widths: Widths) -> None:
    for _ in forward(held, widths):
        pass
    for name in ("hidden", "back"):
        held.drop(name)
