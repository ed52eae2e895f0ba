"""The probe of activations: real products at the widths of the model's layer, experts' buffers, a sampler.

It makes the tensors that vLLM's profile run keeps alive at its two peaks (vllm/v1/worker/gpu_model_runner.py
profile_run, _dummy_sampler_run), the sampler's as the engine's budget counts them for the release and its
runner, and nothing else. On a GPU what torch.sort takes is predicted too, and the matrix library's workspace
is measured and added. The matrices are tiles of the probe's own, so the weights' values do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt

from kvplan.proof.tensor import Dtype, Tensor
from kvplan.proof.validate.stages.base import EXACT, Bench, Held
from kvplan.proof.validate.stages.widths import IN_PLACE, MASKED, SORTED, Widths
from kvplan.results import Budget

WORKSPACE = "matrix_workspace_bytes"
_ELEMENTS = {1: "bfloat16", 2: "bfloat16", 4: "float32"}


def probe(bench: Bench, widths: Widths, *, scaled: bool, budget: Budget | None, name: str) -> None:
    """Run it once and keep the peak. scaled: a rehearsal, the budget's line is not compared."""
    device = bench.device
    device.release()
    with Held(device) as held:
        _tile(held, widths)
        before = device.read().requested
        workspace = _workspace(bench, held, widths, before)
        device.start_peak()
        for done, total in forward(held, widths):
            bench.tick(done, total)
        if widths.pairs:
            for done, total in experts(held, widths):
                bench.tick(done, total)
        if widths.rows:
            sampler(held, widths)
            bench.tick()
        peak = device.peak() - before
    device.release()
    predicted = widths.peak_on_gpu + workspace if device.is_gpu else widths.peak
    bench.figure(f"{name}_bytes", predicted, peak, allowed_ppm=None if device.is_gpu else EXACT)
    if scaled:
        bench.note(
            f"the probe of activations is scaled to {widths.tokens:,} tokens and {widths.rows:,} sampled rows"
        )
        return
    line = None if budget is None else next((one for one in budget.lines if "activation" in one.name), None)
    if line is not None:
        bench.figure(f"{name}_of_budget_bytes", line.bytes, peak)
        if peak > line.high_bytes:
            bench.note(f"the probe's peak lies above the budget's interval, {line.high_bytes:,} B")


def _workspace(bench: Bench, held: Held, widths: Widths, before: int) -> int:
    """Bytes that the matrix library keeps after its first product; nothing on host memory."""
    if not bench.device.is_gpu:
        return 0
    import torch

    tile = _tile(held, widths)
    side = min(16, isqrt(int(tile.numel())))
    square = tile[: side * side].view(side, side)
    product = held.new("product", (side, side), _dtype(widths))
    torch.mm(square, square, out=product)
    held.drop("product")
    del product
    kept = bench.device.read().requested - before
    if all(one.name != WORKSPACE for one in bench.figures):
        bench.figure(WORKSPACE, None, kept)
    return kept


def _dtype(widths: Widths) -> Dtype:
    import torch

    return getattr(torch, _ELEMENTS[widths.element])


def _tile(held: Held, widths: Widths) -> Tensor:
    if not held.has("tile"):
        tile = held.new(
            "tile", (widths.tile * max(widths.hidden, widths.mlp, widths.expert),), _dtype(widths)
        )
        tile.fill_(0.01)
    return held["tile"]


def _product(held: Held, widths: Widths, left: Tensor, out: Tensor) -> Iterator[int]:
    """out = left · matrix, tile by tile into the columns of out; yields the columns that are done."""
    import torch

    tile, inner, columns = _tile(held, widths), int(left.shape[1]), int(out.shape[1])
    step = max(1, min(columns, int(tile.numel()) // inner))
    for start in range(0, columns, step):
        end = min(columns, start + step)
        matrix = tile[: inner * (end - start)].view(inner, end - start)
        torch.mm(left, matrix, out=out[:, start:end])
        yield end


def forward(held: Held, widths: Widths) -> Iterator[tuple[int, int]]:
    """hidden → gate and up → their product → hidden; the two hiddens stay."""
    import torch

    dtype, tokens = _dtype(widths), widths.tokens
    total = 3 * widths.mlp + widths.hidden
    hidden = held.new("hidden", (tokens, widths.hidden), dtype)
    hidden.fill_(0.5)
    back = held.new("back", (tokens, widths.hidden), dtype)
    both = held.new("gate_up", (tokens, 2 * widths.mlp), dtype)
    for done in _product(held, widths, hidden, both):
        yield done, total
    gate, up = both[:, : widths.mlp], both[:, widths.mlp :]
    product = held.new("product", (tokens, widths.mlp), dtype)
    torch.mul(torch.nn.functional.relu(gate, inplace=True), up, out=product)
    for done in _product(held, widths, product, back):
        yield 3 * widths.mlp + done, total
    held.drop("product")
    held.drop("gate_up")


def experts(held: Held, widths: Widths) -> Iterator[tuple[int, int]]:
    """The fused experts' two buffers, filled by products of the expert's width."""
    dtype, pairs, width = _dtype(widths), widths.pairs, widths.expert
    first = held.new("workspace13", (pairs * max(2 * width, widths.hidden),), dtype)
    second = held.new("workspace2", (pairs * max(width, widths.hidden),), dtype)
    rows = second[: pairs * widths.hidden].view(pairs, widths.hidden)
    rows.fill_(0.5)
    for done in _product(held, widths, rows, first[: pairs * 2 * width].view(pairs, 2 * width)):
        yield done, 3 * width
    narrow = second[: pairs * width].view(pairs, width)
    for done in _product(held, widths, narrow, first[: pairs * widths.hidden].view(pairs, widths.hidden)):
        yield 2 * width + min(done, width), 3 * width
    held.drop("workspace2")
    held.drop("workspace13")


def sampler(held: Held, widths: Widths) -> None:
    """Logits, and what the engine's sampler makes of them, beside the hidden states."""
    import torch

    held.drop("back")
    shape = (widths.rows, widths.vocab)
    logits = held.new("logits", shape, _dtype(widths))
    logits.normal_()
    if widths.sampled != IN_PLACE:
        copy = held.new("copy", shape, torch.float32)
        copy.copy_(logits)
    if widths.sampled == MASKED:
        masked = held.new("masked", shape, torch.float32)
        torch.clamp(copy, min=-1.0, out=masked)
        torch.softmax(masked, dim=-1, out=held.new("probabilities", shape, torch.float32))
    if widths.sampled == SORTED:
        values = held.new("values", shape, torch.float32)
        torch.sort(copy, dim=-1, out=(values, held.new("places", shape, torch.int64)))
        torch.softmax(values, dim=-1, out=held.new("probabilities", shape, torch.float32))
    for name in ("probabilities", "places", "values", "masked", "copy", "logits"):
        if held.has(name):
            held.drop(name)
