"""Which attention backend a model gets on a GPU, and the pages that it needs.

sgl-project/sglang 0.5.23 arg_groups/model_override_base.py (get_default_attn_backend),
arg_groups/overrides.py (_mla_backend_page_constraints, _fa4_page_constraint, _page_size_default),
arg_groups/model_overrides/*.py.
"""

from __future__ import annotations

from kvplan.dtypes import KvDtype
from kvplan.engines.base import has_kind
from kvplan.engines.options import Options
from kvplan.engines.sglang.devices import Device
from kvplan.engines.sglang.dtypes import is_sparse_latent
from kvplan.engines.sglang.models import is_deepseek
from kvplan.families import FullAttention, Kind, MultiHeadLatentAttention, SlidingWindow, SparseIndexer
from kvplan.model import Model
from kvplan.settings import Settings


def backend_of(
    model: Model, settings: Settings, device: Device, kv: KvDtype, *, strategy: str, options: Options
) -> str:
    """As given, else the model's own override, else the default by architecture and GPU."""
    if settings.attention_backend is not None:
        return settings.attention_backend.lower()
    if has_kind(model, Kind.COMPRESSED):
        return "dsv4"
    if is_sparse_latent(model):
        return "dsa"
    if kv.name == "mxfp8":
        return "fa4"
    if not device.nvidia:
        return "aiter"
    hopper, data_centre = device.major == 9, device.major == 10
    if has_kind(model, Kind.MLA):
        if data_centre:
            return "trtllm_mla" if is_deepseek(model) or _named(model, "kimi_k3") else "flashinfer"
        return "fa3" if hopper else "triton"
    if data_centre:
        return _data_centre_backend(model, settings, strategy, options)
    if _named(model, "gemma4"):
        return "triton"
    if hopper:
        return "fa3"
    return "triton" if _named(model, "gpt_oss", "llama4", "mimo_v2", "exaone", "olmo3") else "flashinfer"


def _data_centre_backend(model: Model, settings: Settings, strategy: str, options: Options) -> str:
    """SM100: trtllm_mha where K and V are equally wide; some hybrids are kept off it."""
    if _named(model, "falcon_h1"):
        return "triton"
    if _named(model, "lfm2", "granitemoehybrid") and has_kind(model, Kind.STATE):
        return "flashinfer"
    if _named(model, "mimo_v2") or has_kind(model, Kind.INDEXER) or _unequal(model):
        return "fa4"
    kept = strategy in ("extra_buffer", "extra_buffer_lazy") or options.flag("disable_radix_cache")
    if _named(model, "qwen3_next", "qwen3_5") and not kept and settings.speculative_method is None:
        return "triton"
    return "trtllm_mha"


def _unequal(model: Model) -> bool:
    return any(
        isinstance(part, (FullAttention, SlidingWindow)) and part.v_head_dim not in (None, part.head_dim)
        for run in model.runs
        for part in run.layer.parts
    )


def _named(model: Model, *stems: str) -> bool:
    """By the start of the model type, or of the class's name without underscores."""
    own = (model.model_type.replace("-", "_"), (model.architecture or "").lower())
    return any(own[0].startswith(stem) or own[1].startswith(stem.replace("_", "")) for stem in stems)


def page_size_of(model: Model, settings: Settings, device: Device, backend: str) -> int:
    """--page-size (here block_size), made what the model or the backend needs; 1 by default."""
    asked = settings.block_size
    if has_kind(model, Kind.COMPRESSED):
        return 256
    if is_sparse_latent(model):
        return 64
    if any(isinstance(part, SparseIndexer) for run in model.runs for part in run.layer.parts):
        return asked or (128 if device.major in (9, 10) else 1)
    if backend == "flashmla" or backend == "hpc_ops":
        return 64
    if backend in ("trtllm_mla", "cutedsl_mla"):
        return asked if asked in (32, 64) else 64
    if backend == "trtllm_mha":
        return asked if asked in (16, 32, 64, 128) else 64
    if (
        backend == "fa4"
        and device.major == 10
        and not any(
            isinstance(part, MultiHeadLatentAttention) for run in model.runs for part in run.layer.parts
        )
    ):
        return 128
    return asked or 1
