"""Which CUDA graphs a start captures, once the kernels of its attention have had their say.

vllm-project/vllm vllm/config/compilation.py, resolve_cudagraph_mode_and_sizes (0.20 to 0.33): full graphs of
every batch (FULL) need kernels that take any batch in a graph, of all layers; where one does not, the mode
is FULL_AND_PIECEWISE. Such kernels are those whose metadata builder says AttentionCGSupport.ALWAYS
(vllm/v1/attention/backends/): Triton's, FlexAttention, ROCm's own, and FlashAttention in its version 3, which
is compute capability 9.0. Recurrent states say UNIFORM_BATCH or less.
"""

from __future__ import annotations

from kvplan.engines.base import has_kind
from kvplan.engines.vllm.class_roles import is_pooling
from kvplan.engines.vllm.engine import compiled
from kvplan.engines.vllm.graphs import FULL, FULL_AND_PIECEWISE, NONE, PIECEWISE
from kvplan.engines.vllm.options import VllmOptions
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.settings import Serving

_ALWAYS = frozenset({"TRITON_ATTN", "FLEX_ATTENTION", "ROCM_ATTN"})
_THIRD = "FLASH_ATTN"
_HOPPER = (9, 0)


def graph_mode(model: Model, settings: Serving, version: str) -> str:
    """The mode in force: as asked, or what it falls back to. Models that pool have no full graphs
    (vllm/config/vllm.py, pooler_config)."""
    asked = VllmOptions.of(settings).cudagraph_mode or FULL_AND_PIECEWISE
    if asked != NONE and is_pooling(model, settings):
        return PIECEWISE
    if asked != FULL or takes_any_batch(model, settings, version):
        return asked
    return FULL_AND_PIECEWISE


def takes_any_batch(model: Model, settings: Serving, version: str) -> bool:
    """Whether the kernels of every layer take any batch in a full graph."""
    if has_kind(model, Kind.STATE):
        return False
    try:
        served = set(str(compiled(model, version, settings).settings.get("attention_backend", "")).split("+"))
    except KvplanError:
        return False
    hopper = settings.gpu is not None and settings.gpu.compute_capability == _HOPPER
    return served <= (_ALWAYS | {_THIRD} if hopper else _ALWAYS)
