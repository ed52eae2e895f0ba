"""Whether graphs of prompts keep memory free, in the releases from 0.5.10 to 0.5.21, and what drafts keep.

sgl-project/sglang server_args.py: 0.5.10 to 0.5.13 (_handle_piecewise_cuda_graph), 0.5.14 to 0.5.18
(_disable_tc_piecewise_cudagraph_if_incompatible, _disable_breakable_cudagraph_if_incompatible), from 0.5.19
on arg_groups/cuda_graph_hook.py, and _handle_gpu_memory_settings; configs/model_config.py
(piecewise_cuda_graph_disabled_model_archs, multimodal_breakable_cuda_graph_supported_model_archs). Later
releases: `.models.has_prefill_graphs`.
"""

from __future__ import annotations

from kvplan.engines.base import has_kind
from kvplan.engines.release_rules import within
from kvplan.engines.sglang.start.arguments import Arguments
from kvplan.engines.sglang.start.dtypes import is_sparse_latent
from kvplan.engines.sglang.start.models import has_prefill_graphs, is_multimodal, known_of
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.units import KIB

_STANDALONE, _EAGLE = 6 * KIB, 4 * KIB
_USUAL = ("none", "deepep", "megamoe", "flashinfer")


def has_prompt_graphs(model: Model, arguments: Arguments) -> bool:
    """Whether memory is kept for them: on NVIDIA GPUs alone."""
    if not arguments.device.nvidia or arguments.two_batches:  # "TBO capture is unsupported"
        return False
    era, a2a = arguments.rules.prompt_graphs, arguments.moe_a2a_backend
    if era.startswith("piecewise"):
        return _piecewise(model, arguments)
    if not arguments.graphs or arguments.dcp > 1:
        return False
    images = _is_in(known_of(model).piecewise_images, arguments)
    if era.startswith("breakable") and arguments.rules.image_graphs != "0.5.14" and images:
        return _piecewise(model, arguments)
    if era in _BREAKABLE:
        return _BREAKABLE[era](model, arguments) and _plain_or_breaks(model, arguments)
    # Not with pipeline stages or unusual backends (apply_cuda_graph_compatibility).
    return arguments.pp == 1 and a2a in _USUAL and has_prefill_graphs(model)


def _breakable(model: Model, arguments: Arguments) -> bool:
    if has_kind(model, Kind.MLA) or has_kind(model, Kind.COMPRESSED):
        return False
    return arguments.pp == 1 and arguments.attn_dp == 1 and arguments.moe_a2a_backend == "none"


def _breakable_sparse(model: Model, arguments: Arguments) -> bool:
    dense = has_kind(model, Kind.MLA) and not is_sparse_latent(model)
    if dense or has_kind(model, Kind.COMPRESSED) or known_of(model).override == "nemotron_h":
        return False
    return arguments.moe_a2a_backend in _USUAL


def _breakable_images(model: Model, arguments: Arguments) -> bool:
    rules = arguments.rules
    if has_kind(model, Kind.COMPRESSED) or (_is_kda(model) and rules.image_graphs == "0.5.20"):
        return False
    return (arguments.pp == 1 or rules.image_graphs == "0.5.18") and arguments.moe_a2a_backend in _USUAL


_BREAKABLE = {
    "breakable": _breakable,
    "breakable, DSA": _breakable_sparse,
    "breakable, images": _breakable_images,
}
"""Graphs that break, by the rules of the release."""


def _plain_or_breaks(model: Model, arguments: Arguments) -> bool:
    known = known_of(model)
    since = known.breakable_images
    able = bool(since) and _is_in((since,), arguments)
    return known.asks_prefill_graphs or not is_multimodal(model) or able


def _is_in(releases: tuple[str, ...], arguments: Arguments) -> bool:
    """Whether the rules of images are those of one of [since, until)."""
    era = arguments.rules.image_graphs
    since, until = (*releases, "", "")[:2]
    return bool(era and since) and within(era, since, until)


def _is_kda(model: Model) -> bool:
    return any(part.family == "kda" for run in model.runs for part in run.layer.parts)


def _piecewise(model: Model, arguments: Arguments) -> bool:
    era = arguments.rules.prompt_graphs
    known = known_of(model)
    if known.not_piecewise or (is_multimodal(model) and not _is_in(known.piecewise_images, arguments)):
        return False
    if era == "piecewise" and arguments.draft_tokens:
        return False
    if era in ("piecewise", "piecewise, drafts") and is_sparse_latent(model):
        return False
    if not arguments.graphs and arguments.rules.image_graphs:  # heard from 0.5.14 on
        return False
    return arguments.pp == 1 and arguments.attn_dp == 1 and arguments.moe_a2a_backend == "none"


def draft_reserve(arguments: Arguments) -> int:
    """MiB that stay free for a draft model and its graphs, above the least, from 0.5.10 to 0.5.13."""
    if not arguments.rules.drafts_kept or not arguments.draft_tokens or arguments.looked_up:
        return 0
    return _STANDALONE if arguments.standalone else _EAGLE
