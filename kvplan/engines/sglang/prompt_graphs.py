"""Whether graphs of prompts keep memory free, in the releases from 0.5.10 to 0.5.17, and what drafts keep.

sgl-project/sglang server_args.py: 0.5.10 to 0.5.13 (_handle_piecewise_cuda_graph), 0.5.14 to 0.5.17
(_disable_tc_piecewise_cudagraph_if_incompatible, _disable_breakable_cudagraph_if_incompatible), and
_handle_gpu_memory_settings; configs/model_config.py (piecewise_cuda_graph_disabled_model_archs). Later
releases: `.models.has_prefill_graphs`.
"""

from __future__ import annotations

from kvplan.engines.base import has_kind
from kvplan.engines.sglang.arguments import Arguments
from kvplan.engines.sglang.dtypes import is_sparse_latent
from kvplan.engines.sglang.models import class_of, has_prefill_graphs, is_multimodal
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.units import KIB

_NOT_PIECEWISE = frozenset(
    "DeepseekV4ForCausalLM Qwen3NextForCausalLM BailingMoeV2_5ForCausalLM LLaDAModelLM".split()
)
_PIECEWISE_IMAGES = {
    "0.5.14": frozenset(("Cohere2VisionForConditionalGeneration",)),
    "0.5.16": frozenset(
        """Cohere2VisionForConditionalGeneration KimiK25ForConditionalGeneration MiniMaxM3SparseForCausalLM
        MiniMaxM3SparseForConditionalGeneration""".split()
    ),
}
"""Since when → image models whose prompts have graphs all the same."""
_BREAKABLE_IMAGES = frozenset(("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"))
"""The same for graphs that break, in 0.5.16 and 0.5.17."""
_STANDALONE, _EAGLE = 6 * KIB, 4 * KIB
_USUAL = ("none", "deepep", "megamoe", "flashinfer")


def has_prompt_graphs(model: Model, arguments: Arguments) -> bool:
    """Whether memory is kept for them: on NVIDIA GPUs alone."""
    if not arguments.device.nvidia:
        return False
    era, a2a = arguments.rules.prompt_graphs, arguments.moe_a2a_backend
    images = _PIECEWISE_IMAGES.get(arguments.rules.image_graphs, frozenset())
    if era.startswith("piecewise"):
        return _piecewise(model, arguments, images)
    if not arguments.graphs or arguments.dcp > 1:
        return False
    if era.startswith("breakable") and arguments.rules.image_graphs == "0.5.16" and class_of(model) in images:
        return _piecewise(model, arguments, images)
    if era == "breakable":
        mla = has_kind(model, Kind.MLA) or has_kind(model, Kind.COMPRESSED)
        shut = mla or arguments.attn_dp > 1 or a2a != "none"
        return arguments.pp == 1 and not shut and (not is_multimodal(model) or _breaks(model, arguments))
    if era == "breakable, DSA":
        dense = has_kind(model, Kind.MLA) and not is_sparse_latent(model)
        if dense or class_of(model).startswith("NemotronH"):
            return False
        if is_multimodal(model) and not _breaks(model, arguments):
            return False
    # Not with pipeline stages or unusual backends (apply_cuda_graph_compatibility).
    return arguments.pp == 1 and a2a in _USUAL and has_prefill_graphs(model)


def _breaks(model: Model, arguments: Arguments) -> bool:
    return arguments.rules.image_graphs == "0.5.16" and class_of(model) in _BREAKABLE_IMAGES


def _piecewise(model: Model, arguments: Arguments, images: frozenset[str]) -> bool:
    era = arguments.rules.prompt_graphs
    if class_of(model) in _NOT_PIECEWISE or (is_multimodal(model) and class_of(model) not in images):
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
