"""The probe of activations as numbers: its tensors, whole on a GPU, scaled in a rehearsal. Pure."""

from __future__ import annotations

from dataclasses import replace

from kvplan.architectures.config.activation_shape import Shape, shape_of
from kvplan.dtypes import scalar
from kvplan.engines.tensors import Rank
from kvplan.record import record
from kvplan.settings import expert_width_ways
from kvplan.units import MIB, ceil_div
from kvplan.validate.target import Target

REHEARSED_BYTES = 32 * MIB
REHEARSED_OPERATIONS = 4 * 10**8
"""About two seconds of a CPU that has no arithmetic of its own for bfloat16."""
TILE_BYTES = 16 * MIB
"""A matrix of the probe's own is at most so large: wider layers are multiplied tile by tile."""
DEFAULT_TOKENS, DEFAULT_SEQS = 8192, 256


@record()
class Widths:
    """tokens of one step, rows that are sampled, and the layer's widths on one rank. element: bytes.

    pairs: token and expert pairs of one step, 0 without experts.
    """

    tokens: int
    rows: int
    hidden: int
    mlp: int
    vocab: int
    element: int
    pairs_per_token: int = 0
    expert: int = 0

    @property
    def pairs(self) -> int:
        return self.tokens * self.pairs_per_token

    @property
    def tile(self) -> int:
        """Columns of one tile of a matrix with as many rows as the longest dimension."""
        return max(1, TILE_BYTES // (self.element * max(self.hidden, self.mlp, self.expert)))

    @property
    def forward_bytes(self) -> int:
        """tokens · (hidden in, hidden out, gate and up, their product) · element."""
        return self.tokens * (2 * self.hidden + 3 * self.mlp) * self.element

    @property
    def workspace_bytes(self) -> int:
        """The experts' two buffers: pairs · (max(2 · width, hidden) + max(width, hidden)) · element."""
        per_pair = max(2 * self.expert, self.hidden) + max(self.expert, self.hidden)
        return self.pairs * per_pair * self.element

    @property
    def sampler_bytes(self) -> int:
        """rows · vocabulary · (logits, probabilities and sorted values in float32, places in int64)."""
        return self.rows * self.vocab * (4 + 4 + 4 + 8)

    @property
    def peak(self) -> int:
        """The largest of the three parts, the tile left out. Beside the experts stand both hidden states,
        beside the sampler one."""
        hidden = self.tokens * self.hidden * self.element
        experts = 2 * hidden + self.workspace_bytes if self.pairs else 0
        sampler = hidden + self.sampler_bytes if self.rows else 0
        return max(self.forward_bytes, experts, sampler)

    @property
    def needed(self) -> int:
        """The peak with what torch.sort takes beside the sampler's tensors: an order in int64, and a second
        buffer of keys and of places, as much again as the tensors."""
        sorting = self.tokens * self.hidden * self.element + 2 * self.sampler_bytes if self.rows else 0
        return max(self.peak, sorting)

    @property
    def operations(self) -> int:
        """Multiplications and additions of the forward pass and of the experts' part."""
        return 2 * (self.tokens * 3 * self.hidden * self.mlp + self.pairs * 3 * self.hidden * self.expert)


def widths_of(target: Target, rank: Rank) -> Widths:
    """The whole probe: max_num_batched_tokens and max_num_seqs as the engine resolves them."""
    settings, resolved = target.settings, target.result.settings
    element = scalar(str(resolved.get("dtype") or "bfloat16")).bytes
    shape: Shape = shape_of(target.model, element)
    tensor = settings.tensor_parallel_size
    last = rank.stage == settings.pipeline_parallel_size - 1
    tokens = int(resolved.get("max_num_batched_tokens") or settings.max_num_batched_tokens or DEFAULT_TOKENS)
    rows = int(resolved.get("max_num_seqs") or settings.max_num_seqs or DEFAULT_SEQS)
    return Widths(
        tokens=tokens,
        rows=min(rows, tokens) if last else 0,
        hidden=max(1, shape.hidden_size),
        mlp=max(1, ceil_div(shape.mlp_width, tensor)),
        vocab=max(1, shape.vocab_size),
        element=element,
        pairs_per_token=shape.experts_per_token,
        expert=ceil_div(shape.expert_width, expert_width_ways(settings)) if shape.experts_per_token else 0,
    )


def rehearsed(widths: Widths) -> Widths:
    """The same layer with fewer tokens and rows, so that host memory and time stay small."""
    one = replace(widths, tokens=1, rows=min(1, widths.rows))
    by_bytes = REHEARSED_BYTES // max(1, one.forward_bytes, one.workspace_bytes)
    by_time = REHEARSED_OPERATIONS // max(1, one.operations)
    rows = REHEARSED_BYTES // max(1, one.sampler_bytes)
    return replace(
        widths,
        tokens=max(1, min(widths.tokens, by_bytes, by_time)),
        rows=min(widths.rows, max(1, rows)),
    )
