"""Buffers that attention's kernels keep once graphs are captured: FlashInfer's, and FlashAttention 3's sums.

vllm-project/vllm vllm/v1/attention/backends/flashinfer.py and flash_attn.py (FlashAttentionMetadataBuilder).
"""

from __future__ import annotations

from typing import Any

from kvplan.engines.vllm.backends.selection import flashinfer_serves
from kvplan.engines.vllm.cache_layout.built_model import Served
from kvplan.engines.vllm.compiled import Compiled, compiled
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.start.architectures import as_run
from kvplan.engines.vllm.start.resolve import resolve
from kvplan.engines.vllm.start.runner import V2, runner_of
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.record import record
from kvplan.settings import Serving
from kvplan.units import MIB, ceil_div

WORKSPACE = 394 * MIB
"""VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE, vllm/envs.py."""
SEGMENT, TOGETHER = 20 * MIB, 2
"""The allocator's block for a wrapper's _int_workspace_buffer of 8 MiB (flashinfer/decode.py;
c10/cuda/CUDACachingAllocator.h, kLargeBuffer), and the number of buffers in it."""
_SIZED_BYTES = 16
_BLACKWELL = 10
_PLAIN = frozenset({"FLASH_ATTN", "TRITON_ATTN", "FLASHINFER"})


@record()
class FlashInfer:
    """Buffers that FlashInfer makes when attention first runs with its metadata: while full graphs are
    profiled, not in the profile run, so that they count as graphs (vllm/v1/worker/gpu_model_runner.py,
    profile_cudagraph_memory)."""

    groups: int = 0
    """workspaces; 0: FlashInfer does not run"""
    wrappers: int = 0
    """of each captured decode batch (_get_decode_wrapper)"""
    query_width: int = 0
    """elements of a token's queries on a rank"""
    uniform: bool = True
    """full graphs of several tokens a request are captured (get_cudagraph_support); else speculation leaves
    piecewise graphs alone"""
    sized: bool = False

    def kept(self, tokens: int, full: int) -> int:
        """Bytes, once ``full`` graphs were captured. tokens: max_num_batched_tokens."""
        if not self.groups or not full:
            return 0
        workspace = max(WORKSPACE, tokens * self.query_width * _SIZED_BYTES) if self.sized else WORKSPACE
        return self.groups * workspace + self._segments(full) * SEGMENT

    def _segments(self, full: int) -> int:
        """Of all wrappers as they are estimated: what the first graph takes, and what the second takes for
        each further one. So those of one group are 20 MiB altogether."""
        first = ceil_div(self.wrappers, TOGETHER)
        second = ceil_div(max(0, 2 * self.wrappers - first * TOGETHER), TOGETHER)
        return first + second * (full - 1)


NONE = FlashInfer()


def flashinfer_of(
    model: Model, settings: Serving, version: str, started: Compiled | None = None
) -> FlashInfer:
    """Of one model with its settings, in an installation that has FlashInfer, as vLLM's wheels and images do:
    it comes first on data-centre Blackwell, and elsewhere before Triton."""
    gpu = settings.gpu
    if gpu is None or settings.enforce_eager or gpu.compute_capability is None:
        return NONE
    if VllmOptions.of(settings).flashinfer == "absent":
        return NONE
    try:
        found = started or compiled(model, version, settings)
    except KvplanError:
        return NONE
    if found.plan is None:
        return NONE
    major, backends = gpu.compute_capability[0], set(str(found.settings["attention_backend"]).split("+"))
    unasked = settings.attention_backend is None
    if backends == {"TRITON_ATTN"} and major != _BLACKWELL:
        assumed = unasked and _before_triton(model, settings, version)
    else:
        assumed = unasked and major == _BLACKWELL and backends <= _PLAIN
    groups = sum(not group.state and not group.cross for group in found.plan.groups)
    if not groups or not (assumed or "FLASHINFER" in backends):
        return NONE
    rules = rules_of(version)
    # TRT-LLM's or XQA's kernels have one workspace for all layers (_get_trtllm_gen_workspace_buffer;
    # vllm/utils/flashinfer.py, supports_trtllm_attention).
    if major in rules.flashinfer_own_kernels:
        return FlashInfer(groups=1)
    return FlashInfer(
        # vllm/v1/worker/gpu/attn_utils.py: V2 shares the workspace between groups.
        groups=1 if runner_of(model, settings, version) == V2 else groups,
        wrappers=groups,
        query_width=query_width(model, settings.tensor_parallel_size),
        uniform=False,
        sized=rules.sized_workspaces,
    )


def _before_triton(model: Model, settings: Serving, version: str) -> bool:
    """Whether FLASHINFER, which stands before TRITON_ATTN, takes every layer: quantised caches outside
    data-centre Blackwell, which FlashAttention refuses (vllm/platforms/cuda.py, _get_backend_priorities)."""
    rules, run = rules_of(version), as_run(model, version)
    served = Served(run, resolve(run, settings, rules), rules, version)
    asks = [
        served.ask(part, served.kv_word(number))
        for number, layer in served.layers
        for part in served.parts(layer)
        if part.kind is not Kind.STATE
    ]
    return bool(asks) and all(ask.quantized and flashinfer_serves(ask) for ask in asks)


def query_width(model: Model, tp: int) -> int:
    """num_attention_heads / tp · head_dim of the widest layer."""
    dims: list[Any] = [getattr(part, "head_dim", 0) for run in model.runs for part in run.layer.parts]
    widest = max((dim for dim in dims if isinstance(dim, int)), default=0)
    return -(-model.num_attention_heads // tp) * widest


PIECES = 32
FLOAT32 = 4
_HOPPER = (9, 0)
_LATENT_BLOCK = 64


@record()
class AttentionBuffers:
    """flashinfer: what it keeps. split_bytes: of FlashAttention 3, for a token of the largest full graph.
    latent_block: tokens of a block where attention keeps latents."""

    flashinfer: FlashInfer = NONE
    split_bytes: int = 0
    latent_block: int = _LATENT_BLOCK


def buffers_of(
    model: Model, settings: Serving, version: str, started: Compiled | None = None
) -> AttentionBuffers:
    """Of one model with its settings in a release. started: a start with them, where one is at hand; of a
    model without states it may be for any length and max_num_seqs, which choose neither backends nor groups.
    """
    return AttentionBuffers(
        flashinfer_of(model, settings, version, started),
        split_bytes(model, settings, version),
        latent_block(model, settings, version),
    )


def split_bytes(model: Model, settings: Serving, version: str) -> int:
    """32 · heads · (head_dim + 1) · 4, of a rank; latent attention with kv_lora_rank
    (backends/mla/flashattn_mla.py, _build_decode); 0 where the kernel does not serve all layers.

    Where full graphs are captured FlashAttention 3 may divide a request's tokens in up to 32 pieces
    (flash_attn_max_num_splits_for_cuda_graph, vllm/config/attention.py), and makes float32 sums of each for
    every token of the graph, in the graphs' pool: [pieces, heads, tokens, head_dim] and [pieces, heads,
    tokens]. Allocations of 0.33 on an H200 are these to the byte (tests/budget/test_splits.py).
    """
    gpu, tp = settings.gpu, settings.tensor_parallel_size
    if gpu is None or settings.enforce_eager or gpu.compute_capability != _HOPPER:
        return 0
    try:
        found = compiled(model, version, settings)
    except KvplanError:
        return 0
    heads = ceil_div(model.num_attention_heads, tp)
    served = "" if found.plan is None else str(found.settings["attention_backend"])
    if served == "FLASH_ATTN_MLA":
        return PIECES * FLOAT32 * heads * (_latent_rank(model) + 1)
    return PIECES * FLOAT32 * (query_width(model, tp) + heads) if served == "FLASH_ATTN" else 0


def latent_block(model: Model, settings: Serving, version: str) -> int:
    """The block size in force, of latent attention; of a hybrid as large as its states."""
    if not _latent_rank(model):
        return _LATENT_BLOCK
    try:
        return int(compiled(model, version, settings).settings.get("block_size") or _LATENT_BLOCK)
    except KvplanError:
        return _LATENT_BLOCK


def _latent_rank(model: Model) -> int:
    parts = (part for layer in model.distinct() for part in layer.parts)
    return max((part.kv_lora_rank for part in parts if part.kind is Kind.MLA), default=0)
