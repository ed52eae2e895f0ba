"""TensorRT-LLM, PyTorch backend of 1.2: blocks of tokens_per_block, one pool for each window size.

Mirrors NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/resource_manager.py (KVCacheManager:
get_cache_bytes_per_token, calculate_max_num_blocks, adjust_window_sizes_for_vswa,
calculate_max_num_blocks_for_vswa), mamba_cache_manager.py, model_loader.py (dtypes) and llmapi/llm_args.py
(defaults). kv_cache_memory is its max_gpu_total_bytes (what the fraction leaves for the cache), block_size
tokens_per_block, max_num_seqs max_batch_size, max_model_len max_seq_len.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from kvplan.engines.base import (
    NOTHING_HELD,
    answer_length,
    answer_of,
    encoder_length,
    layer_answers,
    planned_settings,
    planned_values,
    request_tokens,
    undividable,
)
from kvplan.engines.options import EngineOption
from kvplan.engines.supported import check_class, classes
from kvplan.engines.trtllm import v2
from kvplan.engines.trtllm.options import OPTIONS, TrtllmOptions
from kvplan.engines.trtllm.plan import (
    MAX_BATCH_SIZE,
    MAX_NUM_TOKENS,
    Blocks,
    Plan,
    blocks_charged,
    blocks_held,
    make_plan,
    pool_blocks,
    rank_bytes,
    state_slots,
)
from kvplan.engines.trtllm.store import part_store, store_for, tokens_per_block
from kvplan.engines.trtllm.v2 import PlanV2, plan_v2
from kvplan.engines.trtllm.windows import check_retention, warnings_of, windows_of
from kvplan.errors import KvplanError
from kvplan.families import Storage
from kvplan.model import Model
from kvplan.record import Json, record
from kvplan.results import (
    EngineRef,
    LayerTerms,
    ModelRef,
    PerGpu,
    Pool,
    PoolGroup,
    Refusal,
    Request,
    SizeResult,
    Total,
    plain_number,
)
from kvplan.settings import Serving, Settings
from kvplan.weights.formats import Kernel

KERNELS = (
    Kernel("a kernel padding to 128 and 256", width=128, hidden=256),
    Kernel("one without padding"),
    Kernel("one padding to 256", width=256, hidden=256, bias_bytes=4),
)
"""Those of tensorrt_llm/_torch/modules/fused_moe/ (Triton on Hopper, TRTLLM-Gen and CUTLASS on Blackwell) pad
by at most 256 in both sizes: the interval reaches from none to that."""

_KEPT = frozenset(
    "full_attention sliding_window chunked_attention mla sparse_indexer shared_kv no_cache mamba2"
    " gated_delta_net".split()
)
"""Families that its cache managers have (_torch/pyexecutor/resource_manager.py, mamba_cache_manager.py)."""


def expert_kernels(model: Model, settings: Settings, version: str) -> tuple[Kernel, ...]:
    """The kernels that may keep experts stored in blocks, the likely one first (`kvplan.weights.formats`)."""
    return KERNELS


class TrtLlm:
    """Engine ``trtllm``."""

    name: str = "trtllm"
    versions: tuple[str, ...] = ("1.2",)
    options: tuple[EngineOption, ...] = OPTIONS

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Blocks and state slots of the requests; with kv_cache_memory the pools and who fits."""
        if settings.decode_context_parallel_size > 1:
            raise KvplanError(
                "unsupported-setting",
                "how TensorRT-LLM divides a request over context-parallel ranks is not known here",
                help="leave decode_context_parallel_size at 1",
            )
        compiled = _compile(model, version, _max_seq_len(model, settings), planned_values(settings))
        plan, refusal = compiled.plan, compiled.refusal
        tokens = settings.tokens if settings.tokens is not None else compiled.max_seq_len
        encoder_tokens, warning = encoder_length(model, settings, tokens)
        if refusal is None and tokens > compiled.max_seq_len:
            refusal = _too_long(tokens, compiled.max_seq_len)
        held, pool = NOTHING_HELD, None
        if plan is not None:
            memory = settings.kv_cache_memory
            if isinstance(plan, PlanV2):
                held = v2.held(plan, tokens, settings)
                if memory is not None and refusal is None:
                    refusal, pool = v2.answer(plan, tokens, memory)
            else:
                held = _held(plan, tokens, settings)
                if memory is not None and refusal is None:
                    refusal, pool = _answer(plan, tokens, memory)
        request = Request(tokens, encoder_tokens, settings.requests, answer_length(settings, tokens))
        return answer_of(
            compiled, request, held, pool, refusal, warnings=(warning, _admission(plan, tokens, pool))
        )


@record()
class Compiled:
    """Everything that does not depend on the request; plan is None when the model is refused."""

    model: ModelRef
    engine: EngineRef
    plan: Plan | PlanV2 | None
    refusal: Refusal | None
    max_seq_len: int
    settings: Json
    layers: tuple[LayerTerms, ...]
    warnings: tuple[str, ...]


@lru_cache(maxsize=256)
def _compile(model: Model, version: str, max_seq_len: int, values: tuple[Any, ...]) -> Compiled:
    settings = planned_settings(values)
    options = TrtllmOptions.of(settings)
    check_retention(model, options)
    store = store_for(model, settings)
    refusal = _unsupported(model) or check_class(model, "TensorRT-LLM") or undividable(model, settings)
    make = plan_v2 if options.use_kv_cache_manager_v2 else make_plan
    plan: Plan | PlanV2 | None = None
    if refusal is None:
        plan = make(model, store, settings, options, max_seq_len)
    slots = state_slots(plan) if isinstance(plan, Plan) and plan.fullest.state else None
    return Compiled(
        ModelRef(model.id, model.source),
        EngineRef(TrtLlm.name, version),
        plan,
        refusal,
        max_seq_len,
        MappingProxyType(_shown(model, store, settings, options, max_seq_len, slots)),
        layer_answers(model, lambda part: part_store(store, part, settings.mamba_ssm_cache_dtype)),
        (*model.warnings, *_flash_mla(model, settings), *warnings_of(model, options)),
    )


def _flash_mla(model: Model, settings: Serving) -> list[str]:
    block = tokens_per_block(model, settings)
    if settings.block_size in (None, block):
        return []
    return [f"tokens_per_block is {block} with FlashMLA, whatever is asked"]


def plan_of(model: Model, settings: Settings, version: str) -> Plan | None:
    """The plan behind the answer; None where the model is refused, and for KVCacheManagerV2."""
    plan = _compile(model, version, _max_seq_len(model, settings), planned_values(settings)).plan
    return plan if isinstance(plan, Plan) else None


def _max_seq_len(model: Model, settings: Settings) -> int:
    return max(1, settings.max_model_len or model.max_model_len or request_tokens(model, settings))


def _held(plan: Plan, tokens: int, settings: Settings) -> tuple[PerGpu, Total]:
    """Whole blocks of every window (one more where it is full), a state slot and its snapshots."""
    held = [rank_bytes(plan, rank, tokens) for rank in plan.ranks]
    most, rank = max(zip(held, plan.ranks, strict=True), key=lambda pair: pair[0])
    growth = Fraction(
        sum(size for window, size, _ in rank.windows if tokens < window or window == plan.max_seq_len)
    )
    if plan.interval is not None:
        growth += Fraction(rank.state, plan.interval)
    ranks, count = settings.tensor_parallel_size, settings.requests
    replica = sum(held) * ranks
    return PerGpu(most, most * count, most * count, plain_number(growth), rank.state), Total(
        replica, replica * count
    )


def _answer(plan: Plan, tokens: int, memory: int) -> tuple[Refusal | None, Pool | None]:
    found = pool_blocks(plan, memory)
    rank = plan.fullest
    snapshots = plan.interval is not None
    if rank.state and (state_slots(plan) + snapshots) * rank.state > memory and rank.windows:
        fitting = memory // rank.state // (plan.resident // plan.max_batch_size) - 2 * snapshots
        return (
            Refusal(
                "not-enough-memory",
                f"{state_slots(plan):,} state slots of {rank.state:,} bytes"
                f" (max_batch_size {plan.max_batch_size:,}) are more than {memory:,} bytes",
                help=(f"--max-num-seqs {fitting // 2}",) if fitting > 1 else (),
            ),
            None,
        )
    if any(pool.blocks < 1 for pool in found):
        return Refusal("not-enough-memory", f"{memory:,} bytes hold no block of {plan.block} tokens"), None
    longest = _longest(plan, found)
    if tokens > longest:
        return _too_long(tokens, longest), None
    fitting = min(
        (pool.blocks // max(blocks_charged(plan, pool.window, tokens), 1) for pool in found),
        default=plan.max_batch_size,
    )
    largest = max(found, key=lambda pool: pool.window, default=None)
    kv_tokens = 0 if largest is None else largest.blocks * plan.block
    groups = tuple(
        PoolGroup(
            "full" if pool is largest else "window",
            pool.layers,
            plan.block,
            pool.token_bytes * plan.block,
            blocks_held(plan, pool.window, longest),
        )
        for pool in found
    )
    if rank.state:
        groups += (PoolGroup("state", 0, 1, rank.state, 1),)
    return None, Pool(
        bytes=memory,
        bytes_per_block=0 if largest is None else largest.token_bytes * plan.block,
        num_blocks=0 if largest is None else largest.blocks,
        groups=groups,
        kv_tokens=kv_tokens,
        max_concurrency=kv_tokens / longest,
        max_requests=min(fitting, plan.max_batch_size),
        requests_that_fit=fitting,
        max_num_seqs=plan.max_batch_size,
        max_running=min(fitting, plan.max_batch_size),
    )


def _longest(plan: Plan, found: tuple[Blocks, ...]) -> int:
    """max_seq_len; the longest window where the pools cut one (_validate_and_adjust_attention_windows)."""
    asked = {window for rank in plan.ranks for window, _, _ in rank.windows}
    if all(pool.window in asked and pool.window <= pool.blocks * plan.block for pool in found):
        return plan.max_seq_len
    return max(min(pool.window, pool.blocks * plan.block) for pool in found)


def _admission(plan: Plan | PlanV2 | None, tokens: int, pool: Pool | None) -> str | None:
    """The memory with which a request is admitted, where it is more than it holds once its prompt is read."""
    if pool is None or not isinstance(plan, Plan):
        return None
    for window, _, _ in plan.fullest.windows:
        held, charged = (count(plan, window, tokens) for count in (blocks_held, blocks_charged))
        if charged > held:
            return (
                f"a request is admitted with {charged:,} blocks of the window of {window:,} tokens, as its"
                f" prompt is read in chunks (--max-num-batched-tokens), and holds {held:,} of them afterwards"
            )
    return None


def _too_long(tokens: int, longest: int) -> Refusal:
    return Refusal(
        "request-too-long",
        f"a request of {tokens:,} tokens is longer than max_seq_len {longest:,}",
        largest_max_model_len=longest,
        help=(f"--tokens {longest}",),
    )


def _unsupported(model: Model) -> Refusal | None:
    """The class (_torch/models/modeling_auto.py), then the layers of the cache managers."""
    name = model.architecture
    if name is not None and name not in classes("trtllm", "builds"):
        return Refusal(
            "unsupported-model",
            f"TensorRT-LLM's PyTorch backend: unknown architecture for AutoModelForCausalLM: {name}",
            help=("its AutoDeploy backend may run it; kvplan does not know that one's cache",),
        )
    for run in model.runs:
        for part in run.layer.parts:
            if part.family not in _KEPT:
                what = model.architecture or model.model_type
                return Refusal(
                    "unsupported-model",
                    f"TensorRT-LLM 1.2's cache managers have no {part.family} layers ({what})",
                )
    return None


def _shown(
    model: Model,
    store: Storage,
    settings: Serving,
    options: TrtllmOptions,
    max_seq_len: int,
    slots: int | None,
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "dtype": store.dtype.name,
        "kv_cache_dtype": store.kv.name,
        "tokens_per_block": tokens_per_block(model, settings),
        "max_seq_len": max_seq_len,
        "max_batch_size": settings.max_num_seqs or MAX_BATCH_SIZE,
        "max_num_tokens": settings.max_num_batched_tokens or MAX_NUM_TOKENS,
        "max_attention_window": list(windows_of(options)) or None,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "pipeline_parallel_size": settings.pipeline_parallel_size,
        "enable_attention_dp": options.enable_attention_dp,
    }
    if options.use_kv_cache_manager_v2:
        shown["use_kv_cache_manager_v2"] = True
    if slots is not None:
        shown["mamba_cache_dtype"] = store.conv_state.name
        shown["mamba_ssm_cache_dtype"] = settings.mamba_ssm_cache_dtype
        shown["state_slots"] = slots
    return shown
