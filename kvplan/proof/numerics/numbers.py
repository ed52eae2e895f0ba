"""Numbers of few bits, and vectors of them under one scale: what the engines' kernels do, in float32.

Every function takes float32 numbers [..., width]; ``steps`` are stored numbers before they are multiplied
with their scale.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.proof.tensor import Tensor

E4M3_LARGEST, E5M2_LARGEST, E2M1_LARGEST = 448.0, 57344.0, 6.0
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""ggml-org/llama.cpp ggml/src/ggml-common.h, kvalues_iq4nl."""
SMALLEST_SCALE = 1e-6
"""vllm-project/vllm triton_reshape_and_cache_flash.py: scales are at least this."""


def rounded_to(values: Tensor, name: str) -> Tensor:
    """Rounded to a torch type and back; what is too large for it becomes its largest number."""
    import torch

    kind = getattr(torch, name)
    largest = torch.finfo(kind).max
    return values.clamp(-largest, largest).to(kind).to(torch.float32)


def e2m1(values: Tensor) -> Tensor:
    """The nearest four-bit float; halves go to the even one (OCP MX v1.0)."""
    import torch

    grid = torch.tensor(_E2M1, device=values.device)
    magnitude = values.abs().clamp(max=E2M1_LARGEST)
    above = torch.searchsorted(grid, magnitude).clamp(1, len(_E2M1) - 1)
    low, high = grid[above - 1], grid[above]
    middle = (low + high) / 2
    up = (magnitude > middle) | ((magnitude == middle) & (above % 2 == 0))
    return torch.where(up, high, low) * values.sign()


def one_scale(values: Tensor, largest: float, *, calibrated: bool) -> Tensor:
    """One scale for the tensor: its largest magnitude where it was calibrated, else 1."""
    return (values.abs().max() / largest).clamp(min=SMALLEST_SCALE) if calibrated else values.new_tensor(1.0)


def half_away(values: Tensor) -> Tensor:
    """To the next whole number, halves away from zero."""
    return (values.abs() + 0.5).floor() * values.sign()


def vector_scale(values: Tensor, largest: float) -> Tensor:
    """A scale for each vector: [..., 1]."""
    return (values.abs().amax(-1, keepdim=True) / largest).clamp(min=SMALLEST_SCALE)


def grouped(values: Tensor, size: int) -> Tensor:
    """[..., width / size, size], the last group filled up with the last number."""
    import torch

    short = -values.shape[-1] % size
    if short:
        values = torch.cat([values, values[..., -1:].expand(*values.shape[:-1], short)], dim=-1)
    return values.unflatten(-1, (-1, size))


def joined(values: Tensor, width: int) -> Tensor:
    """Join the pieces that `grouped` made."""
    return values.flatten(-2)[..., :width]


def power_of_two_scale(values: Tensor, largest_exponent: int) -> Tensor:
    """E8M0 (OCP MX v1.0 §6.3): 2^(floor(log2(largest magnitude)) - the element type's largest exponent)."""
    import torch

    magnitude = values.abs().amax(-1, keepdim=True)
    exponent = torch.floor(torch.log2(magnitude.clamp(min=2.0**-120))) - largest_exponent
    return torch.exp2(exponent.clamp(-127, 127))


def between(values: Tensor, bits: int, *, half_precision: bool = True) -> Tensor:
    """Whole steps between the least and the largest number of a vector; scale and least one in float16."""
    import torch

    low = values.amin(-1, keepdim=True)
    scale = ((values.amax(-1, keepdim=True) - low) / (2**bits - 1)).clamp(min=1e-8)
    steps = ((values - low) / scale + 0.5).floor().clamp(0, 2**bits - 1)
    if half_precision:
        scale, low = scale.to(torch.float16).float(), low.to(torch.float16).float()
    return steps * scale + low


def hadamard(values: Tensor) -> Tensor:
    """Times the orthonormal Hadamard matrix of the largest power of two that divides the width: its own
    inverse."""
    width = values.shape[-1]
    size = width & -width
    return joined(grouped(values, size) @ _hadamard(size).to(values.device), width)


@lru_cache(maxsize=16)
def _hadamard(size: int) -> Tensor:
    import torch

    matrix = torch.ones(1, 1)
    while matrix.shape[0] < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / size**0.5


def nearest(values: Tensor, levels: Tensor) -> Tensor:
    """The place of the nearest of sorted levels."""
    import torch

    middles = (levels[1:] + levels[:-1]) / 2
    return torch.searchsorted(middles, values.contiguous(), right=True)


@lru_cache(maxsize=32)
def lloyd_max(width: int, bits: int) -> Tensor:
    """The best levels for a coordinate of a rotated unit vector, N(0, 1/width): each is the mean of what is
    nearest to it (Lloyd 1957, Max 1960)."""
    import torch

    normal = torch.distributions.Normal(torch.tensor(0.0, dtype=torch.float64), 1.0)
    levels = torch.linspace(-2.5, 2.5, 2**bits, dtype=torch.float64)
    far = torch.tensor([torch.inf], dtype=torch.float64)
    for _ in range(2000):
        edges = torch.cat([-far, (levels[1:] + levels[:-1]) / 2, far])
        density = torch.where(edges.isinf(), 0.0, normal.log_prob(edges.nan_to_num(posinf=0, neginf=0)).exp())
        share = normal.cdf(edges).diff()
        better = -density.diff() / share
        if torch.allclose(better, levels, rtol=0, atol=1e-9):
            break
        levels = better
    return (levels / width**0.5).float()


def iq4_levels(device: object) -> Tensor:
    """The sixteen levels of ggml's iq4_nl."""
    import torch

    return torch.tensor(_IQ4, dtype=torch.float32, device=device)
