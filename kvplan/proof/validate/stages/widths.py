"""The probe of activations as numbers: its tensors, whole on a GPU, scaled in a rehearsal. Pure."""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import Shape, shape_of
from kvplan.dtypes import scalar
from kvplan.engines.folders import part_of
from kvplan.engines.tensors import Rank
from kvplan.proof.validate.target import Target
from kvplan.record import record, replace
from kvplan.settings import expert_width_ways
from kvplan.units import MIB, ceil_div

REHEARSED_BYTES = 32 * MIB
REHEARSED_OPERATIONS = 4 * 10**8
"""About two seconds of a CPU that has no arithmetic of its own for bfloat16."""
TILE_BYTES = 16 * MIB
"""A matrix of the probe's own is at most so large: wider layers are multiplied tile by tile."""
DEFAULT_TOKENS, DEFAULT_SEQS = 8192, 256
IN_PLACE, COPIED, MASKED, SORTED = "in place", "copied", "masked", "sorted"
"""A sampler's copies of the logits: nothing; a copy in float32; that, a masked copy and probabilities; the
copy, and the vocabulary sorted."""
_LARGEST_INT = 2**31 - 1
_ALIGNED = 256
MATRIX_WORKSPACE = 32 * MIB
"""The most that the matrix library keeps on a GPU of today (compute capability 9.0 and later)."""


def sort_bytes(rows: int, vocab: int) -> int:
    """Bytes that torch.sort takes on a GPU for float32 [rows, vocab] with int64 places, besides input and
    outputs; CUB's small tables of digits (of the plain radix sort, below 128 rows) are left out.

    pytorch/pytorch 2.11 aten/src/ATen/native/cuda/SortStable.cu, in parts of at most 2^31 - 1 numbers.
    """
    if not rows or vocab <= 4096:  # in place
        return 8 * vocab if rows else 0
    part = max(1, min(rows, _LARGEST_INT // vocab))
    if part == 1 or vocab >= 10**6:  # a row by itself
        return vocab * 8 + _twice(vocab)
    if part < 128:  # the whole part twice: two tables of (row, place), keys that are thrown away
        return part * vocab * (8 + 8 + 4) + _twice(part * vocab)
    return part * vocab * 8 + _twice(part * vocab)


def _twice(numbers: int) -> int:
    """CUB's other buffer of keys and of places (cub AliasTemporaries), each rounded up to 256 B, and 255 B to
    align them."""
    return sum(ceil_div(numbers * each, _ALIGNED) * _ALIGNED for each in (4, 8)) + _ALIGNED - 1


@record()
class Widths:
    """tokens of one step, rows that are sampled, and the layer's widths on one rank. element: bytes.

    pairs: token and expert pairs of one step, 0 without experts. sampled: what the engine's profile run makes
    of the logits.
    """

    tokens: int
    rows: int
    hidden: int
    mlp: int
    vocab: int
    element: int
    pairs_per_token: int = 0
    expert: int = 0
    sampled: str = SORTED

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
    def logit_bytes(self) -> tuple[int, int]:
        """For one logit: tensors while the vocabulary is sorted (0 where it is not), and at the end."""
        kept = {IN_PLACE: 0, COPIED: 4, MASKED: 4 + 4 + 4, SORTED: 4 + 4 + 8 + 4}[self.sampled]
        return (self.element + kept - 4 if self.sampled == SORTED else 0), self.element + kept

    @property
    def sampler_bytes(self) -> int:
        """rows · vocabulary · (logits as the model has them, and what is made of them): a copy in float32,
        masked and as probabilities, or sorted with places in int64 and then as probabilities."""
        return self.rows * self.vocab * max(self.logit_bytes)

    @property
    def sorting_bytes(self) -> int:
        """The sampler on a GPU while it sorts; 0 where it does not."""
        if self.sampled != SORTED:
            return 0
        return self.rows * self.vocab * self.logit_bytes[0] + sort_bytes(self.rows, self.vocab)

    def _peak(self, sampler: int) -> int:
        hidden = self.tokens * self.hidden * self.element
        experts = 2 * hidden + self.workspace_bytes if self.pairs else 0
        return max(self.forward_bytes, experts, hidden + sampler if self.rows else 0)

    @property
    def peak(self) -> int:
        """The largest of the three parts, the tile left out. Beside the experts stand both hidden states,
        beside the sampler one."""
        return self._peak(self.sampler_bytes)

    @property
    def peak_on_gpu(self) -> int:
        """The same with what torch.sort takes there; the matrix library's workspace comes on top."""
        return self._peak(max(self.sampler_bytes, self.sorting_bytes))

    @property
    def needed(self) -> int:
        """The most that the probe holds on a GPU."""
        return self.peak_on_gpu + MATRIX_WORKSPACE

    @property
    def operations(self) -> int:
        """Multiplications and additions of the forward pass and of the experts' part."""
        return 2 * (self.tokens * 3 * self.hidden * self.mlp + self.pairs * 3 * self.hidden * self.expert)


def sampled_by(target: Target) -> str:
    """The sampler of the engine's profile run, by the bytes for one logit that its budget counts with
    (``coefficients_for`` of its part ``budget``: by release, runner and board). An engine that says nothing
    is taken to sort, which takes most."""
    rules = getattr(part_of(target.choice.engine.name, "budget"), "coefficients_for", None)
    gpu = target.settings.gpu or target.spec
    if rules is None or gpu is None:
        return SORTED
    counted = rules(target.model, replace(target.settings, gpu=gpu), target.choice).logit_millibytes
    made = {IN_PLACE: 2, COPIED: 6, MASKED: 14, SORTED: 38}
    return min(made, key=lambda name: abs(1000 * made[name] - counted))


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
        sampled=sampled_by(target),
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
