"""A prompt's step beside the caches: activations, and scores of attention that no kernel of MLX fuses.

ml-explore/mlx 0.32.4 mlx/backend/metal/scaled_dot_product_attention.cpp (has_fused_kernel, use_fallback): of
steps of more than 8 tokens heads of 64, 72, 80, 96 and 128 are fused; those of 192 and 256 could be, and are
slower so but on an M5. A quantised cache and latents have their scores whole
(mlx_lm/models/base.py, deepseek_v3.py).
"""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.engines.mlx.caches import Kept, terms_of
from kvplan.engines.mlx.models import EXPANDED, quantises, rotates, type_of
from kvplan.engines.mlx.rows import Course
from kvplan.families import Kind, Part
from kvplan.model import Model
from kvplan.record import replace

FUSED = frozenset({64, 72, 80, 96, 128})
_COPIES = 2
"""Arrays of scores at once: on a CPU 1.2 of them were alive at the peak; a GPU's queue may hold the masked
ones beside the softmax."""
_READS = (Kind.FULL, Kind.SLIDING, Kind.CHUNKED, Kind.MLA)


def activation_bytes(model: Model, tokens: int, kept: Kept) -> int:
    """Bytes of so many tokens in the widest layer: hidden states, q, k and v, and its widest products."""
    shape = shape_of(model, kept.element.bytes)
    experts = shape.experts_per_token * (shape.hidden_size + 3 * shape.expert_width)
    widths = (part.key_width for run in model.runs for part in run.layer.parts)
    widest = max(3 * shape.mlp_width, experts, 3 * model.num_attention_heads * max(widths, default=0))
    return tokens * (4 * shape.hidden_size + widest) * kept.element.bytes


def scores_bytes(model: Model, course: Course, kept: Kept) -> int:
    """Bytes of the scores of a prompt's last whole step, of the layer with the most."""
    read = max(course.prompt - 1, 0)
    step, most = min(course.step, read), 0
    for run in model.runs:
        for part in run.layer.parts:
            if part.kind in _READS and not is_fused(model, part, kept):
                bound = part.window if part.kind is not Kind.SLIDING or rotates(model) else None
                seen = min(read, course.step + bound) if bound else read
                most = max(most, seen)
    return _COPIES * model.num_attention_heads * step * most * kept.element.bytes


def is_fused(model: Model, part: Part, kept: Kept) -> bool:
    """Whether Metal has a kernel for a prompt's attention over this part's cache."""
    if kept.bits is not None and quantises(model):
        return False
    if part.kind is Kind.MLA and type_of(model) not in EXPANDED:
        return False
    key, value = (term.factors[-1].value for term in terms_of(model, part, replace(kept, bits=None)))
    return key == value and key in FUSED
