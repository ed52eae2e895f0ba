"""Text Generation Inference 3.3: one block pool for all layers, every token kept.

Mirrors huggingface/text-generation-inference 3.3 server/text_generation_server/models/flash_causal_lm.py
(FlashCausalLM.__init__, warmup), models/globals.py (BLOCK_SIZE), launcher/src/main.rs (resolve_attention) and
backends/v3/src/{queue,block_allocator,radix}.rs; read from source, never run. max_model_len is its
max_total_tokens, max_num_seqs max_batch_size, max_num_batched_tokens max_batch_prefill_tokens.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvplan.dtypes import kv_dtype, scalar
from kvplan.engines.base import (
    NOTHING_HELD,
    answer_length,
    layers_with,
    request_tokens,
)
from kvplan.engines.options import EngineOption
from kvplan.engines.tgi.options import BLOCKS, OPTIONS, TgiOptions
from kvplan.engines.tgi.prefill import prefill_tokens
from kvplan.engines.traits import not_on
from kvplan.errors import KvplanError
from kvplan.families import FullAttention, SlidingWindow, Storage, unwindowed
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.record import record
from kvplan.results import (
    EngineRef,
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
from kvplan.units import ceil_div

_OLDEST = (7, 5)
"""layers/attention/cuda.py, 3.3.5."""
_ROCM = ("gfx90a", "gfx942")
"""Dockerfile_amd, 3.3.5. Images for Gaudi, Neuron, TPU and Intel GPUs have memory rules of their own
(backends/gaudi, backends/neuron, Dockerfile_intel), which are not read here."""

NATIVE = frozenset(
    """llama phi3 granite gemma gemma2 gemma3_text cohere dbrx mistral mixtral gpt_bigcode gpt2 gptj gpt_neox
    phi phimoe baichuan falcon starcoder2 qwen2 idefics2 idefics3 llava_next llama4 paligemma gemma3 qwen2_vl
    qwen2_5_vl""".split()
)
"""model_type of its own flash classes (models/__init__.py, ModelType); others run through transformers."""
FLASHINFER_WIDTHS = (64, 128, 256)
_SLOW = ("falcon", "deepseek_v2")
_BFLOAT16 = ("gemma2", "gemma3", "gemma3_text")
_AMPERE = (8, 0)


@record()
class Plan:
    """Everything fixed before a memory is known. block_bytes: one block of all layers on one shard."""

    attention: str
    block: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_bytes: int
    prefill: int
    dtype: str
    kv_dtype: str


class Tgi:
    """Engine ``tgi``."""

    name: str = "tgi"
    versions: tuple[str, ...] = ("3.3",)
    options: tuple[EngineOption, ...] = OPTIONS

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Blocks of a request; with kv_cache_memory the pool and who fits."""
        for name in ("pipeline_parallel_size", "decode_context_parallel_size"):
            if getattr(settings, name) > 1:
                raise KvplanError(
                    "unsupported-setting", f"TGI has no {name}", help="use --tp, TGI's --num-shard"
                )
        options = TgiOptions.of(settings)
        tokens = request_tokens(model, settings)
        request = Request(tokens, 0, settings.requests, answer_length(settings, tokens))
        named, ref = ModelRef(model.id, model.source), EngineRef(self.name, version)
        plan = plan_of(model, settings, options)
        if isinstance(plan, Refusal):
            return SizeResult(named, ref, {}, request, *NOTHING_HELD, (), None, plan, model.warnings)
        speculate = options.speculate
        one = charged(plan, tokens, speculate) * plan.block_bytes
        pool, refusal = _pool(plan, model, settings, options, request)
        count, ranks = settings.requests, settings.tensor_parallel_size
        kept = kv_dtype(plan.kv_dtype)
        store = Storage(kv=kept, dtype=scalar(plan.dtype), conv_state=scalar(plan.dtype))
        shown: dict[str, Any] = {
            "dtype": plan.dtype,
            "kv_cache_dtype": plan.kv_dtype,
            "tensor_parallel_size": ranks,
            "attention": plan.attention,
            "block_size": plan.block,
            "max_batch_prefill_tokens": plan.prefill,
            "max_concurrent_requests": options.max_concurrent_requests,
        }
        return SizeResult(
            named,
            ref,
            shown,
            request,
            PerGpu(one, one * count, one * count, plain_number(Fraction(plan.block_bytes, plan.block)), 0),
            Total(one * ranks, one * ranks * count),
            layers_with(model, lambda part: unwindowed(part).terms(store)),
            pool,
            refusal,
            (*model.warnings, *_words(model)),
        )


def charged(plan: Plan, tokens: int, speculate: int = 0) -> int:
    """Blocks of a request."""
    return ceil_div(kept_tokens(tokens, speculate), plan.block)


def kept_tokens(tokens: int, speculate: int = 0) -> int:
    """Tokens that a request has blocks for: queue.rs allocates for prompt + answer + speculate - 1, since
    nothing comes after the last one."""
    return max(1, tokens + speculate - 1)


def plan_of(model: Model, settings: Serving, options: TgiOptions) -> Plan | Refusal:
    """Raises KvplanError(bad-setting | engine-gpu)."""
    check(settings.gpu)
    widths = set()
    for run in model.runs:
        part = run.layer.parts[0] if len(run.layer.parts) == 1 else None
        if not isinstance(part, (FullAttention, SlidingWindow)):  # window_size is None (models/model.py)
            return _unserved(f"how it keeps {run.layer.family} is not read here")
        if part.value_width != part.key_width:
            return _unserved("keys and values have several widths")
        widths.add((part.num_kv_heads, part.head_dim))
    if len(widths) != 1:
        return _unserved("its pool has one width for all layers, and these have several")
    ((num_kv_heads, head_dim),) = widths
    ranks = settings.tensor_parallel_size
    own = num_kv_heads // ranks if num_kv_heads > 1 else num_kv_heads
    if not own or (model.num_attention_heads and model.num_attention_heads % ranks):
        return Refusal(
            "tensor-parallel",
            f"TGI does not divide {model.num_attention_heads} heads ({num_kv_heads} of keys) by {ranks}",
            help=(f"--tp {num_kv_heads}",),
        )
    own_word = options.tgi_attention or attention_of_image(settings.gpu)
    attention = own_word or attention_of(model, settings, head_dim)
    dtype = settings.dtype
    if dtype == "auto":
        dtype = "bfloat16" if model.model_type in _BFLOAT16 else "float16"
    kept = kv_dtype(scalar(dtype).name if settings.kv_cache_dtype == "auto" else settings.kv_cache_dtype)
    if kept.name.startswith("fp8") and attention == "flashdecoding":
        return Refusal(
            "unsupported-setting", "TGI's flashdecoding keeps no fp8 cache", help=("--kv-cache-dtype auto",)
        )
    block = BLOCKS[attention]
    row = kept.key_packing(head_dim).bytes_for(head_dim) * own * 2
    return Plan(
        attention, block, model.num_layers, own, head_dim, row * block * model.num_layers,
        settings.max_num_batched_tokens or prefill_tokens(model, settings), scalar(dtype).name, kept.name,
    )  # fmt: skip


def attention_of(model: Model, settings: Serving, head_dim: int) -> str:
    """resolve_attention: flashinfer for heads of 64, 128 and 256; else by the compute capability."""
    if head_dim in FLASHINFER_WIDTHS and model.model_type not in _SLOW:
        return "flashinfer"
    able = settings.gpu.compute_capability if settings.gpu is not None else None
    return "paged" if able is not None and able < _AMPERE else "flashdecoding"


def _unserved(why: str) -> Refusal:
    return Refusal("unsupported-model", why, help=("--engine vllm",))


def _words(model: Model) -> tuple[str, ...]:
    said = ("TGI's rules are read from its source; no server was asked",)
    if model.model_type in NATIVE:
        return said
    return (*said, f"{model.model_type} runs through transformers there, where the image's release has it")


def _pool(
    plan: Plan, model: Model, settings: Settings, options: TgiOptions, request: Request
) -> tuple[Pool | None, Refusal | None]:
    if settings.kv_cache_memory is None:
        return None, None
    blocks = settings.kv_cache_memory // plan.block_bytes
    need = charged(plan, request.tokens, options.speculate)
    stated = settings.max_model_len
    if stated is not None and stated > blocks * plan.block:
        return None, Refusal(
            "not-enough-memory",
            f"max_total_tokens {stated:,} is more than {blocks:,} blocks of {plan.block} tokens hold",
            largest_max_model_len=blocks * plan.block or None,
            help=(f"--max-model-len {blocks * plan.block}",) if blocks else (),
        )
    longest = settings.max_model_len or model.max_model_len or request.tokens
    concurrent = options.max_concurrent_requests
    most = min(concurrent, settings.max_num_seqs or concurrent)
    fits = max(0, blocks - 1) // need  # block 0 is for health checks
    refusal = None
    if request.tokens > longest:
        refusal = Refusal(
            "request-too-long",
            f"a request of {request.tokens:,} tokens is longer than max_total_tokens {longest:,}",
            largest_max_model_len=longest,
            help=(f"--tokens {longest}",),
        )
    elif not fits:
        largest = max(0, blocks - 1) * plan.block + 1
        refusal = Refusal(
            "not-enough-memory",
            f"a request of {request.tokens:,} tokens does not fit {blocks:,} blocks of {plan.block} tokens",
            largest_max_model_len=largest if blocks > 1 else None,
        )
    group = PoolGroup("full", plan.num_layers, plan.block, plan.block_bytes // max(1, plan.num_layers), need)
    return Pool(
        bytes=blocks * plan.block_bytes,
        bytes_per_block=plan.block_bytes,
        num_blocks=blocks,
        groups=(group,),
        kv_tokens=blocks * plan.block,
        max_concurrency=blocks / need,
        max_requests=min(fits, most),
        requests_that_fit=fits,
        max_num_seqs=most,
        max_running=min(fits, most),
    ), refusal


def check(gpu: Gpu | None) -> None:
    """Raises KvplanError(engine-gpu)."""
    if gpu is None or (why := _why_not(gpu)) is None:
        return
    raise not_on(gpu, why)


def _why_not(gpu: Gpu) -> str | None:
    capability, target, vendor = gpu.compute_capability, gpu.device_target, gpu.vendor.lower()
    if vendor not in ("nvidia", "amd"):
        return f"the memory rules of TGI on {gpu.name} ({gpu.vendor}) are not known"
    if capability is not None and capability < _OLDEST:
        return f"TGI needs compute capability 7.5 or newer: {gpu.name} has {'.'.join(map(str, capability))}"
    if vendor == "amd" and target is not None and target not in _ROCM:
        return f"TGI's image for AMD is built for {' and '.join(_ROCM)}: {gpu.name} is {target}"
    return None


def attention_of_image(gpu: Gpu | None) -> str | None:
    """The image's own ATTENTION (Dockerfile_amd sets it); None where the launcher decides."""
    return "paged" if gpu is not None and gpu.vendor.lower() == "amd" else None
