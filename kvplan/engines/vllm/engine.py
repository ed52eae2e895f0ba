"""vLLM: block tables, groups and pages as its V1 planner lays them out (rules of 0.8 to 0.33).

Held to the block against vllm-project/vllm 0.32.0's own planner. What is assumed of the installation stands
in `backends.selection`. The answer's groups are those of the first pipeline stage, which vLLM's
scheduler works with; bytes are those of the fullest stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvplan.engines.base import NOTHING_HELD, answer_length, answer_of, encoder_length, parse_version
from kvplan.engines.budget.sharing import Taken
from kvplan.engines.options import EngineOption
from kvplan.engines.vllm.cache_layout.plan import Plan
from kvplan.engines.vllm.compiled import Compiled, compile_start, planned_values
from kvplan.engines.vllm.concurrency.concurrent_requests import (
    burst_blocks,
    held_blocks,
    max_running,
    prompt_blocks,
    running_blocks,
    taken_of_blocks,
)
from kvplan.engines.vllm.options import BLACKWELL, OPTIONS, VllmOptions
from kvplan.engines.vllm.start.architectures import as_run
from kvplan.engines.vllm.start.defaults import device_of
from kvplan.engines.vllm.versions import VERSIONS
from kvplan.later import later
from kvplan.model import Model
from kvplan.results import PerGpu, Pool, Refusal, Request, SizeResult, Total, plain_number
from kvplan.settings import Settings, further_ranks

if TYPE_CHECKING:
    from kvplan.engines.vllm.backends import expert_kernels as kernels
    from kvplan.engines.vllm.backends import padded_kernels
    from kvplan.engines.vllm.memory import state_graphs
    from kvplan.engines.vllm.words import trials
    from kvplan.weights.formats import Kernel
else:
    kernels = later("kvplan.engines.vllm.backends", "expert_kernels")
    padded_kernels = later("kvplan.engines.vllm.backends", "padded_kernels")
    state_graphs = later("kvplan.engines.vllm.memory", "state_graphs")
    trials = later("kvplan.engines.vllm.words", "trials")


class Vllm:
    """Engine ``vllm``."""

    name: str = "vllm"
    versions: tuple[str, ...] = VERSIONS
    options: tuple[EngineOption, ...] = OPTIONS

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Blocks of one request on the fullest GPU; with kv_cache_memory, the pool and its capacity.

        A request holds the blocks that vLLM's scheduler leaves it with; its planner reserves blocks for a
        request's length in every group (cross attention: for its own encoder tokens).
        """
        start, request, refusal, warning = _asked(model, settings, version)
        plan = start.plan
        warnings: tuple[str | None, ...] = (warning,)
        pool = None
        if plan is None:
            held = NOTHING_HELD
        else:
            per_gpu, total, blocks = _request_bytes(plan, start.ranks, request)
            if settings.kv_cache_memory is not None and refusal is None and plan.groups:
                refusal = _memory_refusal(plan, settings)
                if refusal is None:
                    pool = _pool(plan, settings, blocks, request)
                    graphs = None
                    if any(group.state for group in plan.groups):
                        graphs = state_graphs.too_few_states(model, settings, version, plan, pool.num_blocks)
                    if graphs is not None and settings.starts:
                        pool, refusal = None, graphs
                    elif graphs is not None and settings.gpu is not None:
                        warnings += (f"vLLM would stop: {graphs.message}; {graphs.help[0]}",)
            held = per_gpu, total
        return answer_of(start, request, held, pool, refusal, warnings=warnings)

    def taken(self, model: Model, settings: Settings, version: str) -> Taken | None:
        """`kvplan.engines.budget.sharing.taken_of` of `size` without what else it counts.

        Of one shape of a mix nobody asks how many run alone.
        """
        start, request, refusal, _ = _asked(model, settings, version)
        plan, memory = start.plan, settings.kv_cache_memory
        if plan is None or memory is None or refusal is not None or not plan.groups:
            return None
        if _memory_refusal(plan, settings) is not None:
            return None
        return taken_of_blocks(
            plan, plan.num_blocks(memory, settings.num_gpu_blocks_override) - 1, shape_of(request)
        )

    def least_bytes(self, model: Model, settings: Settings, version: str) -> int | None:
        """Bytes of the fullest GPU's blocks in which all requests run at once, however many sequences the
        engine was told to run; None where it refuses the model."""
        start, request, _, _ = _asked(model, settings, version)
        plan = start.plan
        if plan is None or not plan.groups:
            return None
        return burst_blocks(plan, request.count, *shape_of(request)) * plan.widest

    def trials(self, model: Model, settings: Settings) -> Iterator[list[tuple[str, Settings]]]:
        """Changes that make room, from the least to the most of each kind."""
        yield list(trials.smaller_runs(settings))


def _asked(
    model: Model, settings: Settings, version: str
) -> tuple[Compiled, Request, Refusal | None, str | None]:
    """(what does not depend on the request, the request, why it is not served, a warning)."""
    model = as_run(model, version)
    start = compile_start(model, version, planned_values(settings))
    tokens = settings.tokens if settings.tokens is not None else start.max_model_len
    encoder_tokens, warning = encoder_length(model, settings, tokens)
    request = Request(tokens, encoder_tokens, settings.requests, answer_length(settings, tokens))
    refusal = start.refusal
    if refusal is None and further_ranks(settings) > 1:
        from kvplan.engines.vllm.start.prefill_context import wants_eager

        refusal = wants_eager(model, settings)
    if refusal is None and tokens > start.max_model_len:
        refusal = Refusal(
            "request-too-long",
            f"a request of {tokens:,} tokens is longer than max_model_len {start.max_model_len:,}",
            help=(f"--tokens {start.max_model_len}", f"--max-model-len {tokens}"),
        )
    return start, request, refusal, warning


def shape_of(request: Request) -> tuple[int, int, int]:
    """(prompt, answer, encoder tokens)."""
    prompt = max(0, request.tokens - request.answer_tokens)
    return prompt, request.answer_tokens, request.encoder_tokens


def _request_bytes(plan: Plan, ranks: int, request: Request) -> tuple[PerGpu, Total, int]:
    held = plan.held(request.tokens, request.encoder_tokens)
    settled, admitted, fixed = held_blocks(plan, *shape_of(request))
    # Prompts are read one after another: all but one of the requests have settled.
    together = settled * request.count + max(0, admitted - settled)
    widest, replica = plan.widest, plan.replica_bytes * ranks
    per_gpu = PerGpu(
        settled * widest,
        together * widest,
        together * widest,
        plain_number(plan.growth(request.tokens)),
        fixed * widest,
        max(settled, admitted) * widest,
        held * widest,
    )
    return per_gpu, Total(settled * replica, together * replica), held


def _pool(plan: Plan, settings: Settings, held: int, request: Request) -> Pool:
    memory = settings.kv_cache_memory
    assert memory is not None
    num_blocks = plan.num_blocks(memory, settings.num_gpu_blocks_override)
    kv_tokens, concurrency = plan.printed(num_blocks)
    # Block 0 is never handed out, whatever the start-up check of the release counts with.
    fitting = (num_blocks - 1) // held if held else plan.max_num_seqs
    shape = shape_of(request)
    return Pool(
        memory,
        plan.widest,
        num_blocks,
        plan.pool_groups,
        kv_tokens,
        concurrency,
        min(fitting, plan.max_num_seqs),
        fitting,
        plan.max_num_seqs,
        max_running(plan, num_blocks - 1, *shape),
        running_blocks(plan, num_blocks - 1, *shape),
        prompt_blocks(plan, *shape),
    )


def _memory_refusal(plan: Plan, settings: Settings) -> Refusal | None:
    """One request of max_model_len must fit into the usable blocks."""
    memory, override = settings.kv_cache_memory, settings.num_gpu_blocks_override
    assert memory is not None
    needed, usable = plan.reserved(plan.max_model_len), plan.usable(memory, override)
    if needed <= usable:
        return None
    largest = plan.largest_length(memory, override)
    return Refusal(
        "not-enough-memory",
        f"one request of max_model_len {plan.max_model_len:,} needs {needed:,} blocks;"
        f" {max(usable, 0):,} can be used",
        largest_max_model_len=largest or None,
        help=(f"--max-model-len {largest}",) if largest else (),
    )


def expert_kernels(model: Model, settings: Settings, version: str) -> tuple[Kernel, ...]:
    """The kernels that may keep experts otherwise than they are stored, the likely one first
    (`kvplan.weights.formats`)."""
    stored, own = model.quantization or settings.quantization, VllmOptions.of(settings)
    device = device_of(settings.gpu)
    padded: tuple[Kernel, ...] = ()
    if device.major == BLACKWELL and device.vendor == "nvidia":
        padded = padded_kernels.padding_kernels(
            model.model_type, model.config or {}, parse_version(version), own, stored=stored
        )
    if not stored or (padded and "mxfp4" not in stored):
        return padded
    return kernels.kernels_of(
        model.model_type,
        vendor=device.vendor,
        capability=device.capability,
        release=parse_version(version),
        adapters=own.enable_lora,
        backend=own.moe_backend,
    )
