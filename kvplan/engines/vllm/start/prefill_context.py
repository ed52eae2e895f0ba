"""Prefill context parallelism (PCP): prompts divided over further GPUs, which all hold the same cache.

vllm-project/vllm 0.32: vllm/config/parallel.py (PCP ranks are GPUs beside tensor × pipeline parallelism and
no shards of the cache), vllm/v1/worker/gpu/pcp_manager.py (validate_config), vllm/v1/attention/backend.py
(supports_pcp: MLA alone), vllm/config/vllm.py (Model Runner V2 alone).
"""

from __future__ import annotations

from kvplan.engines.base import has_kind
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Layout, Settings, further_ranks

CODE = "context-parallel"
_DRAFTS = ("mtp", "dspark")
UNCOUNTED = (
    "no pool was computed: how the start-up run divides over prefill-context-parallel ranks is not known;"
    " add --kv-cache-memory 16GiB"
)


def refusal_of(model: Model, settings: Layout, version: str) -> Refusal | None:
    """Why vLLM would not start with these PCP and DCP sizes. Raises KvplanError(unknown-rule)."""
    pcp = further_ranks(settings)
    tp, dcp = settings.tensor_parallel_size, settings.decode_context_parallel_size
    if pcp == 1:
        return None
    rules = rules_of(version)
    if not rules.context_ranks:  # v1/worker/cp_utils.py (0.16); Model Runner V2 (0.24, #47846)
        return Refusal(
            CODE,
            f"vLLM {version} has no attention backend for prefill context parallelism",
            help=("--engine vllm@0.32",),
        )
    if not rules.context_ranks_known:
        raise KvplanError(
            "unknown-rule",
            f"prefill context parallelism of vLLM {version} is not known here",
            help="--engine vllm@0.32",
        )
    if dcp not in (1, pcp, tp * pcp):
        sizes = ", ".join(str(size) for size in sorted({1, pcp, tp * pcp}))
        return Refusal(
            CODE,
            f"decode context parallel size {dcp} fits neither the {pcp} prefill-context-parallel ranks nor"
            f" all {tp * pcp}: {sizes}",
            help=(f"--dcp {pcp}",),
        )
    why = _unserved(model, settings, dcp)
    if why is None:
        return None
    return Refusal(CODE, f"prefill context parallelism does not run {why[0]}", help=why[1])


def wants_eager(model: Model, settings: Settings) -> Refusal | None:
    """Sparse MLA whose cache is not divided runs without CUDA graphs only."""
    sparse = further_ranks(settings) > 1 and has_kind(model, Kind.INDEXER)
    if not sparse or settings.decode_context_parallel_size > 1 or settings.enforce_eager:
        return None
    why = "prefill context parallelism does not run sparse MLA with CUDA graphs"
    return Refusal(CODE, why, help=("--enforce-eager",))


def _unserved(model: Model, settings: Layout, dcp: int) -> tuple[str, tuple[str, ...]] | None:
    """Backends that validate_config refuses, and a suggestion where there is one."""
    own, sparse = VllmOptions.of(settings), has_kind(model, Kind.INDEXER)
    if not has_kind(model, Kind.MLA):
        return "models without MLA", ()
    if model.encoder is not None:
        return "encoder-decoder models", ()
    if own.model_runner == "v1":
        return "on model runner V1", ()
    if own.enable_lora:
        return "LoRA adapters", ()
    if settings.speculative_method is not None and settings.speculative_method not in _DRAFTS:
        return f"with {settings.speculative_method} drafts", ("--speculative mtp:1",)
    if dcp > 1 and not sparse:
        return "with decode context parallelism but for sparse MLA", ("--dcp 1",)
    return None
