"""Inputs from stated distributions, in a model's own shapes.

``normal``: queries, keys and values are N(0, 1). ``outliers``: one channel in 32 of each key head is eight
times as large, as keys of real models have it and values do not (KIVI, arXiv 2402.02750 §3; KVQuant, arXiv
2401.18079 §3.1). Heads beyond eight of a layer are like those drawn, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.families import Kind, Part
from kvplan.model import Model
from kvplan.proof.numerics.measure import Sample
from kvplan.proof.tensor import Tensor
from kvplan.record import record

NORMAL, OUTLIERS = "normal", "outliers"
DESCRIPTIONS = {
    NORMAL: "queries, keys and values from N(0, 1)",
    OUTLIERS: "the same, one key channel in 32 eight times as large",
}
_HEADS = 8
_EVERY, _TIMES = 32, 8.0


@record()
class Shape:
    """The heads of one kind of layer. rope: width of an MLA rope key, 0 where there is none."""

    label: str
    heads: int
    query_heads: int
    key: int
    value: int
    rope: int = 0
    scale_width: int = 0

    @property
    def is_latent(self) -> bool:
        return bool(self.rope)

    def words(self) -> str:
        """``8 × 128``; ``512 + 64``."""
        if self.is_latent:
            return f"{self.key} + {self.rope}"
        return f"{self.heads} × {self.key}" + (f" / {self.value}" if self.value != self.key else "")


def shapes_of(model: Model) -> dict[Shape, int]:
    """The shapes of the layers whose cache a KV format stores, and how many layers have each."""
    found: dict[Shape, int] = {}
    for run in model.runs:
        for part in run.layer.parts:
            shape = _shape(part, model.num_attention_heads)
            if shape is not None:
                found[shape] = found.get(shape, 0) + run.count
    return found


def _shape(part: Part, query_heads: int) -> Shape | None:
    if part.kind is Kind.MLA:
        width = part.qk_nope_head_dim + part.qk_rope_head_dim
        heads = part.num_heads or query_heads or 1
        return Shape("MLA", 1, heads, part.kv_lora_rank, part.kv_lora_rank, part.qk_rope_head_dim, width)
    if part.kind not in (Kind.FULL, Kind.SLIDING, Kind.CHUNKED):
        return None
    heads, width = part.num_kv_heads, part.head_dim
    groups = max(1, query_heads // heads)
    return Shape(part.family, heads, heads * groups, width, part.value_width, 0, width)


def draw(shape: Shape, inputs: str, tokens: int, queries: int, seed: int, device: str) -> Sample:
    """One layer's numbers, the same for the same seed on every device."""
    import torch

    noise = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=noise).to(device)

    heads = min(shape.heads, _HEADS)
    asked = (
        heads * (shape.query_heads // shape.heads) if not shape.is_latent else min(shape.query_heads, _HEADS)
    )
    keys = normal(heads, tokens, shape.key)
    if inputs == OUTLIERS:
        larger = torch.randperm(shape.key, generator=noise)[: max(1, shape.key // _EVERY)]
        keys[..., larger.to(device)] *= _TIMES
    scale = (shape.scale_width or shape.key) ** -0.5
    if shape.is_latent:
        rope = normal(1, tokens, shape.rope)
        scale = (shape.key + shape.rope) ** -0.5  # of the latent's own width: scores of variance one
        return Sample(normal(asked, queries, shape.key + shape.rope), keys, None, rope, scale)
    values = normal(heads, tokens, shape.value)
    return Sample(normal(asked, queries, shape.key), keys, values, None, scale)


def samples(
    model: Model, inputs: str, tokens: int, queries: int, seed: int, device: str
) -> Iterator[tuple[Shape, int, Sample]]:
    """Every shape of a model with its layers and numbers."""
    for shape, layers in shapes_of(model).items():
        yield shape, layers, draw(shape, inputs, tokens, queries, seed, device)
