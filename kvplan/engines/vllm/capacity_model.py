"""vLLM's budget and pool as arithmetic: what a class of candidates takes, for any GPU of its kind.

`kvplan.engines.vllm.budget` answers one question at a time, each with a start of its own. A planner asks
thousands that differ in the GPU's memory, max_num_seqs and max_model_len alone; of those the plan of the
cache needs max_model_len and max_num_batched_tokens, the budget max_num_seqs and max_num_batched_tokens, and
the GPU's memory enters last. So every piece is worked out once and the rest is whole-number arithmetic. A
test holds the answers to those of `kvplan.deployment.counts.ask`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from operator import itemgetter
from typing import Any

from kvplan.architectures.config.activation_shape import Shape
from kvplan.architectures.weights import served_sources
from kvplan.dtypes import Packing
from kvplan.engines.base import Choice, encoder_length, generated, has_kind
from kvplan.engines.budget.law import Capacity, Rejection, weights_alone
from kvplan.engines.budget.parts import kernels_of, memory_of, of_share
from kvplan.engines.budget.sharing import Taken, shared_block
from kvplan.engines.vllm.budget import coefficients_for
from kvplan.engines.vllm.cache_layout.plan import Plan
from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.compiled import compiled, planned_values
from kvplan.engines.vllm.concurrency.concurrent_requests import max_running, taken_of_blocks
from kvplan.engines.vllm.encoder_profile.largest_items import BY_MEMORY
from kvplan.engines.vllm.memory.allocator_rounding import beside_weights
from kvplan.engines.vllm.memory.attention_buffers import AttentionBuffers, buffers_of
from kvplan.engines.vllm.memory.coefficients import board_of
from kvplan.engines.vllm.memory.profile_peak import served_shape
from kvplan.engines.vllm.memory.profile_settings import load_of, of_stage, utilization
from kvplan.engines.vllm.memory.rank_budget import after_most, start_lines, vllm_budget
from kvplan.engines.vllm.memory.shared_starts import Batch, Memory, Shared, Start, nothing_left
from kvplan.engines.vllm.memory.state_graphs import too_few_states
from kvplan.engines.vllm.memory.weight_lines import ranks_of, repacked_line, repacked_share, weights_line
from kvplan.engines.vllm.refusals.checks import refusal_of_batch
from kvplan.engines.vllm.start.defaults import batch_row, device_of
from kvplan.engines.vllm.start.resolve import resolve
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import BudgetLine, exact
from kvplan.settings import Settings
from kvplan.units import ceil_div
from kvplan.weights.facts import WeightFacts, WeightSources, weights_by_kernel


def laws_for(base: Settings) -> VllmLaws | None:
    """The laws of one search; None where the engine must be asked: settings with lines in the budget that
    only the engine's own way knows (adapters, drafts)."""
    return None if base.own or base.speculative_method is not None else VllmLaws()


class VllmLaws:
    """The laws of all classes that one search looks at."""

    def __init__(self) -> None:
        self._shared = Shared()
        self._laws: dict[Hashable, VllmLaw] = {}

    def kind(self, gpu: Gpu, choice: Choice, settings: Settings) -> Hashable:
        """GPUs that the engine's rules cannot tell apart but by their memory. Raises KvplanError."""
        device = device_of(gpu)
        row = batch_row(settings, device, rules_of(choice.version))
        known = device.vendor, device.capability, gpu.compute_capability, gpu.multiprocessors, board_of(gpu)
        return known, row

    def law(self, model: Model, choice: Choice, settings: Settings, gpu: Gpu, kind: Hashable) -> VllmLaw:
        """The capacity model of the class. gpu: any of the kind."""
        key = (model, choice.version, choice.asked, settings, kind)
        found = self._laws.get(key)
        if found is None:
            found = self._laws[key] = VllmLaw(self._shared, model, choice, settings, gpu, kind)
        return found


class VllmLaw:
    """One class: a model in one weight format, divided in one way, with one KV format, on one kind of GPU."""

    def __init__(
        self, shared: Shared, model: Model, choice: Choice, settings: Settings, gpu: Gpu, kind: Any
    ) -> None:
        self._shared, self._model, self._choice, self._gpu = shared, model, choice, gpu
        self._settings, self._kind = settings, kind
        self._starts: dict[tuple[int, int], Start | Rejection] = {}
        self._taken: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._others: dict[int, VllmLaw] = {}
        self._share = utilization(settings, choice.version)
        self._facts: WeightFacts | Rejection | None = None
        self._buffers: AttentionBuffers | None = None
        self._beside: dict[tuple[Packing, int], tuple[tuple[BudgetLine, ...], ...]] = {}
        self._parallel = replace(
            ranks_of(model, settings, choice.version), compute_capability=gpu.compute_capability
        )

    def room(
        self, gpu: Gpu, max_num_seqs: int, max_model_len: int, *, safe: bool = False
    ) -> Capacity | Rejection:
        """The pool on a GPU of the kind, and what it holds; or why there is none."""
        if gpu is not self._gpu and class_of(self._model.architecture).largest_item in BY_MEMORY:
            return self._of(gpu).room(gpu, max_num_seqs, max_model_len, safe=safe)
        kept = self._shared.memories.get(self._memory_key(gpu))
        memory = self._memory(gpu) if kept is None else kept[1]
        if isinstance(memory, Rejection):
            return memory
        start = self._starts.get((max_num_seqs, max_model_len))
        if start is None:
            found = self._loaded(max_num_seqs, max_model_len, memory)
            if isinstance(found, Rejection):
                return found  # of this GPU alone: the next one of the kind may have more memory
            start = self._starts[max_num_seqs, max_model_len] = self._start(max_num_seqs, max_model_len)
        if isinstance(start, Rejection):
            return start
        plan, (taken, most) = start.plan, start.taken
        pool = memory.usable - memory.reserved - taken
        if pool <= 0:
            if start.weights >= memory.usable:
                return weights_alone(start.weights, memory.usable)
            return nothing_left(memory, taken)
        if safe:
            pool = max(0, memory.usable - memory.reserved_high - most)
        if not plan.groups:
            return Rejection("no-pool", "the model keeps no cache: its requests take no room")
        num_blocks = pool // plan.widest
        needed, usable = plan.full_request, num_blocks - int(plan.rules.null_block_checked)
        if needed > usable:
            return Rejection(
                "not-enough-memory",
                f"one request of max_model_len {max_model_len:,} needs {needed:,} blocks;"
                f" {max(usable, 0):,} can be used",
                needed - usable,
            )
        states = self._few_states(plan, num_blocks, max_num_seqs)
        if states is not None:
            return states
        held, blocks = self._held(plan), num_blocks - 1

        def runs(tokens: int, answer: int) -> int:
            return max_running(plan, blocks, *self._shape(tokens, answer), limit=max_num_seqs)

        def takes(tokens: int, answer: int) -> Taken | None:
            return taken_of_blocks(plan, blocks, self._shape(tokens, answer), limit=max_num_seqs)

        def share(tokens: int) -> Fraction | None:
            return Fraction(held(tokens), blocks) if blocks else None

        dropped = start.block if plan.steps.drops else 0
        return Capacity(pool, runs, takes, share, start.block, dropped)

    def _few_states(self, plan: Plan, num_blocks: int, seqs: int) -> Rejection | None:
        """Why a server of so many sequences stops once its cache is planned: too few blocks of states."""
        if num_blocks >= seqs:
            return None
        settings = replace(self._settings, gpu=self._gpu, max_num_seqs=seqs)
        version = self._choice.version
        refusal = too_few_states(self._model, settings, version, replace(plan, max_num_seqs=seqs), num_blocks)
        return None if refusal is None else Rejection(refusal.code, refusal.message, seqs - num_blocks)

    def _of(self, gpu: Gpu) -> VllmLaw:
        """The law of a class whose profile run looks at the GPU's memory."""
        found = self._others.get(id(gpu))
        if found is None:
            found = VllmLaw(
                self._shared, self._model, self._choice, self._settings, gpu, (self._kind, id(gpu))
            )
            self._others[id(gpu)] = found
        return found

    def _shape(self, tokens: int, answer: int) -> tuple[int, int, int]:
        """(prompt, answer, encoder tokens) of a request."""
        model, answer = self._model, generated(tokens, answer)
        encoder = encoder_length(model, self._settings, tokens)[0] if model.encoder is not None else 0
        return tokens - answer, answer, encoder

    def _memory(self, gpu: Gpu) -> Memory | Rejection:
        share = self._share
        total, reserved, warnings = memory_of(gpu)
        found: Memory | Rejection
        if total is None:
            found = Rejection("no-memory", warnings[0])
        else:
            usable = ceil_div(total * share.numerator, share.denominator)
            reserved = (*of_share(reserved, share), *start_lines(gpu, total, share, self._settings))
            likely = sum(line.bytes for line in reserved)
            found = Memory(total, usable, likely, sum(line.high_bytes for line in reserved))
        self._shared.memories[self._memory_key(gpu)] = gpu, found
        return found

    def _memory_key(self, gpu: Gpu) -> tuple[int, int, int, int]:
        """All that a GPU's memory depends on: the share, and what the layout may take after its pool."""
        return id(gpu), self._share.numerator, self._share.denominator, after_most(self._settings)

    def _loaded(self, seqs: int, length: int, memory: Memory) -> Rejection | None:
        """Weights that leave nothing spare the start: the engine would see no pool whatever its plan."""
        if self._settings.cpu_offload_gb:
            return None
        batch = self._batch(seqs, length)
        facts = self._weights(batch.dtype) if isinstance(batch, Batch) else None
        if isinstance(facts, WeightFacts) and facts.bytes_per_gpu >= memory.usable:
            return weights_alone(facts.bytes_per_gpu, memory.usable)
        return None

    def _start(self, seqs: int, length: int) -> Start | Rejection:
        batch = self._batch(seqs, length)
        if isinstance(batch, Rejection):
            return batch
        plan = self._plan(seqs, length, batch)
        if isinstance(plan, Rejection):
            return plan
        facts = self._weights(batch.dtype)
        if isinstance(facts, Rejection):
            return facts
        # The length decides what latents and an indexer reserve, and the items of an encoder.
        by_length = has_kind(self._model, Kind.MLA, Kind.INDEXER, Kind.COMPRESSED)
        by_length = by_length or served_shape(self._model, batch.dtype.bytes).is_multimodal
        key = (seqs, batch.tokens, length if by_length else 0)
        if key not in self._taken:
            self._taken[key] = self._takes(facts, seqs, batch, length)
        block = shared_block(plan.pool_groups, prefix_caching=batch.prefix_caching)
        return Start(plan, self._taken[key], facts.bytes_per_gpu, block)

    def _takes(self, facts: WeightFacts, seqs: int, batch: Batch, length: int) -> tuple[int, int]:
        """The memory of the fullest stage: likely, and at most."""
        settings, taken = self._settings, []
        share = repacked_share(self._model, settings)
        own = replace(settings, gpu=self._gpu)
        version = self._choice.asked or self._choice.version
        beside = self._beside.get((batch.dtype, batch.tokens))
        if beside is None:
            beside = self._beside[batch.dtype, batch.tokens] = beside_weights(
                self._model, own, version, self._sources, self._parallel, batch.dtype, batch.tokens
            )
        rest = self._rests(own, seqs, batch, length)
        for stage in range(len(facts.bytes_per_rank)):
            weights = weights_line(facts, stage, settings)
            likely, most = rest(stage)
            repacked = sum(line.high_bytes for line in repacked_line(weights, share))
            beyond = sum(line.bytes for line in beside[stage])
            highest = sum(line.high_bytes for line in beside[stage])
            taken.append((weights.bytes + beyond + likely, weights.high_bytes + highest + most + repacked))
        return max(taken, key=itemgetter(0))

    def _batch(self, seqs: int, length: int) -> Batch | Rejection:
        settings = self._settings
        given = settings.max_num_batched_tokens, settings.enable_prefix_caching, settings.dtype
        key = (self._model, self._choice.version, self._kind, seqs, length, given, settings.kv_cache_dtype)
        found = self._shared.batches.get(key)
        if found is None:
            asked = replace(settings, gpu=self._gpu, max_num_seqs=seqs, max_model_len=length)
            try:
                resolved = resolve(self._model, asked, rules_of(self._choice.version))
                refusal = refusal_of_batch(resolved)
                found = (
                    Batch(
                        resolved.batch.tokens,
                        resolved.dtype,
                        resolved.lengths.longest,
                        resolved.prefix_caching,
                    )
                    if refusal is None
                    else Rejection(refusal.code, refusal.message)
                )
            except KvplanError as error:
                found = Rejection(error.code, error.message)
            self._shared.batches[key] = found
        return found

    def _plan(self, seqs: int, length: int, batch: Batch) -> Plan | Rejection:
        """The plan of the cache. States aside it is the same for every length but for the length itself."""
        model = self._shared.same(self._model, automatic=self._settings.kv_cache_dtype == "auto")
        common = self._common(model, batch)
        found = self._shared.plans.get((common, length))
        if found is not None:
            return found
        within = batch.longest is None or length <= batch.longest
        free = within and not has_kind(model, Kind.STATE)
        other = self._shared.plans.get((common, None)) if free else None
        if isinstance(other, Plan):
            found = replace(other, max_model_len=length)
        else:
            found = self._planned(model, seqs, length, batch, common)
            if free:
                self._shared.plans[common, None] = found
        self._shared.plans[common, length] = found
        return found

    def _common(self, model: Model, batch: Batch) -> Hashable:
        """All that decides a plan but the lengths."""
        return model, self._choice.version, self._kind[0], planned_values(self._settings), batch.tokens

    def _planned(
        self, model: Model, seqs: int, length: int, batch: Batch, common: Hashable
    ) -> Plan | Rejection:
        asked = replace(
            self._settings,
            gpu=self._gpu,
            max_num_seqs=seqs,
            max_model_len=length,
            max_num_batched_tokens=batch.tokens,
        )
        try:
            found = compiled(model, self._choice.version, asked)
        except KvplanError as error:
            return Rejection(error.code, error.message)
        if found.refusal is not None or found.plan is None:
            assert found.refusal is not None
            return Rejection(found.refusal.code, found.refusal.message)
        if not has_kind(model, Kind.STATE):
            self._shared.starts[common] = found
        return found.plan

    @property
    def _sources(self) -> WeightSources:
        settings = self._settings
        if settings.weights is not None:
            return WeightSources(stated_bytes=settings.weights)
        return served_sources(self._model, settings.quantization)

    def _weights(self, dtype: Packing) -> WeightFacts | Rejection:
        if self._facts is not None:
            return self._facts
        settings = self._settings
        kept = kernels_of(self._choice, self._model, replace(settings, gpu=self._gpu))
        key = (self._model, self._parallel, dtype, settings.weights, settings.quantization, kept)
        found = self._shared.facts.get(key)
        if found is None:
            try:
                found = weights_by_kernel(self._sources, self._parallel, dtype, kept)
            except KvplanError as error:
                found = Rejection(error.code, error.message)
            self._shared.facts[key] = found
        self._facts = found
        return found

    def _held(self, plan: Plan) -> Callable[[int], int]:
        """The blocks that a request of a length holds."""
        model, settings = self._model, self._settings

        def held(tokens: int) -> int:
            encoder = encoder_length(model, settings, tokens)[0] if model.encoder is not None else 0
            return plan.held(tokens, encoder)

        return held

    def _rests(
        self, settings: Settings, seqs: int, batch: Batch, length: int
    ) -> Callable[[int], tuple[int, int]]:
        """By stage everything beside weights and what is reserved: activations, contexts, tables, graphs.
        settings: with the GPU."""
        shape: Shape = served_shape(self._model, batch.dtype.bytes)
        known = coefficients_for(self._model, settings, self._choice)
        stated = settings.weights is not None
        version = self._choice.version
        if self._buffers is None:
            model = self._shared.same(self._model, automatic=settings.kv_cache_dtype == "auto")
            started = self._shared.starts.get(self._common(model, batch))
            self._buffers = buffers_of(self._model, settings, version, started)
        whole = load_of(self._model, settings, version, shape, seqs, batch.tokens, length, self._buffers)

        def rest(stage: int) -> tuple[int, int]:
            load = of_stage(whole, stage)
            key = (shape, known, load, stated)
            found = self._shared.rests.get(key)
            if found is None:
                lines = vllm_budget(
                    gpu="",
                    total_bytes=0,
                    weights=exact("weights", 0, ""),
                    shape=shape,
                    load=load,
                    known=known,
                    rotary=not stated,
                ).lines
                found = sum(line.bytes for line in lines), sum(line.high_bytes for line in lines)
                self._shared.rests[key] = found
            return found

        return rest
