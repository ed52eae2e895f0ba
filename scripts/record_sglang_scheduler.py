"""Ask SGLang's own scheduler, caches and policies how they serve traces, in virtual time, without a model.

    PYTHONPATH=. .venv-sglang/bin/python -m scripts.record_sglang_scheduler 0 60 -o FILE   # seeds 0 to 59
    PYTHONPATH=. .venv-sglang/bin/python -m scripts.record_sglang_scheduler --file SCENARIOS -o FILE

Needs sglang 0.5.23 and torch on the CPU (make sglang); its kernel packages are props. SGLang's own classes:
Scheduler.get_next_batch_to_run, PrefillAdder, SchedulePolicy, ScheduleBatch, Req, the unified radix cache,
allocators and the processor of results. Ours: a model that gives each request the tokens that its trace
names, the loops (event_loop_normal, event_loop_overlap) in virtual time, and a step's duration, ``fixed_ns +
token_ns * tokens + context_ns * context`` (context: tokens of its requests that are computed once it is
done). A request ends at its answer's length. Token identities are (id, place in it); what lies
beyond a request's ids is its own.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import sys
import tempfile
from array import array
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scripts.record_vllm_scheduler import TINY
from scripts.scheduler_recorder import record
from scripts.scheduler_traces import Row, rows_of
from scripts.sglang_scenarios import scenario

_ENGINES = Path("tests/engines")
NAMES = ("admitted_step", "admitted_ns", "first_token_ns", "finished_ns", "cached_tokens")


class Quiet:
    """A part of the server that only tells others: whatever it is asked, nothing happens."""

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_args, **_kwargs: None


def staged() -> None:
    """SGLang can be imported: once a process."""
    if "sglang_stage" not in sys.modules:
        sys.path.insert(0, str(_ENGINES.resolve()))
        importlib.import_module("sglang_stage").Stage("h100")
        logging.disable(logging.CRITICAL)


def _published(engine: dict[str, Any]) -> Any:
    """SGLang's settings, resolved by its own code and published to its classes; its model's config."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import ServerArgs

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(TINY))
        args = ServerArgs(
            model_path=folder, skip_tokenizer_init=True, load_format="dummy", device="cuda",
            attention_backend="torch_native", sampling_backend="pytorch", disable_cuda_graph=True,
            page_size=engine["page_size"], chunked_prefill_size=engine["chunked_prefill_size"],
            max_prefill_tokens=engine["max_prefill_tokens"], context_length=engine["context_length"],
            max_running_requests=engine["max_running_requests"], disable_radix_cache=not engine["radix"],
            pp_max_micro_batch_size=engine["max_running_requests"],
            schedule_policy=engine["schedule_policy"], enable_mixed_chunk=engine["mixed"],
            radix_eviction_policy=engine["radix_eviction_policy"],
            disable_overlap_schedule=not engine["overlap"],
            schedule_conservativeness=engine["schedule_conservativeness"],
        )  # fmt: skip
        args.resolve_once()
        publish(args, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
        return ModelConfig.from_server_args(args)


class Oracle:
    """SGLang's scheduler for one scenario's engine."""

    def __init__(self, engine: dict[str, Any], wide: int) -> None:
        staged()
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
        from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
        from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
        from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

        self.engine, self.wide = engine, wide
        self.config = _published(engine)
        page, tokens = engine["page_size"], engine["pages"] * engine["page_size"]
        import torch

        common = {
            "size": tokens,
            "dtype": torch.float32,
            "device": "cpu",
            "kvcache": None,
            "need_sort": False,
        }
        window = engine.get("window")
        if window:
            allocator: Any = _two_pools(common, page, engine["window_pages"] * page)
        elif page == 1:
            allocator = TokenToKVPoolAllocator(**common)
        else:
            allocator = PagedTokenToKVPoolAllocator(page_size=page, **common)
            allocator.use_triton_kernels = False
        shape = (engine["max_running_requests"], engine["context_length"] + 8, "cpu", False)
        states = engine.get("state_slots", 0)
        rows = _with_states(engine, self.config, shape) if states else ReqToTokenPool(*shape)
        kinds = [ComponentType.SWA] * bool(window) + [ComponentType.MAMBA] * bool(states)
        tree = UnifiedRadixCache(
            CacheInitParams(
                disable=not engine["radix"], req_to_token_pool=rows, token_to_kv_pool_allocator=allocator,
                page_size=page, eviction_policy=engine["radix_eviction_policy"],
                tree_components=(ComponentType.FULL, *kinds), sliding_window_size=window,
                enable_mamba_extra_buffer=bool(states) and engine["extra_buffer"],
            )
        )  # fmt: skip
        self.admissions: list[Any] = []
        scheduler: Any = Scheduler.__new__(Scheduler)
        _furnish(scheduler, engine, self.config, rows, allocator, tree, self.admissions)
        self.scheduler = scheduler

    def words(self, number: int, row: Row) -> array[int]:
        """The tokens of a request's prompt and answer."""
        ids, wide = row["ids"], self.wide
        reach, whole = len(ids) * wide, row["input"] + row["output"]
        known = min(reach, whole) if reach >= whole else min(reach, row["input"])
        page = self.engine["page_size"]
        known = known // page * page
        return array(
            "q",
            [
                1 + ids[place // wide] * wide + place % wide
                if place < known
                else (1 << 40) + (number << 24) + place
                for place in range(whole)
            ],
        )

    def request(self, number: int, row: Row) -> Any:
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.sampling.sampling_params import SamplingParams

        words = self.words(number, row)
        asked = SamplingParams(max_new_tokens=row["output"], ignore_eos=self.engine["ignore_eos"])
        asked.normalize(None)
        made = Req(str(number), "", words[: row["input"]], asked)
        made.words = words
        made.number = number
        self.scheduler.init_req_max_new_tokens(made)
        return made

    def run(self, rows: list[Row], step: dict[str, int]) -> dict[str, Any]:
        return _Run(self, rows, step).run()


def _two_pools(common: dict[str, Any], page: int, windows: int) -> Any:
    """The allocator of a full pool and one of windows; windows: tokens of that one."""
    from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
    from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool

    class Nothing(BaseSWAKVPool):  # type: ignore[misc]
        """A pool without tensors."""

        swa_req_ring_size = full_kv_pool = swa_kv_pool = None

        def __init__(self) -> None:
            pass

        def register_mapping(self, full_to_swa_index_mapping: Any) -> None:
            self.full_to_swa_index_mapping = full_to_swa_index_mapping

        def translate_loc_from_full_to_swa(self, kv_indices: Any) -> Any:
            return self.full_to_swa_index_mapping[kv_indices]

    Nothing.__abstractmethods__ = frozenset()
    own = {"size_swa": windows, "page_size": page, "kvcache": Nothing()}
    made = SWATokenToKVPoolAllocator(**common | own)
    if page > 1:
        for one in (made.full_attn_allocator, made.swa_attn_allocator):
            one.use_triton_kernels = False
    return made


def _with_states(engine: dict[str, Any], config: Any, shape: tuple[Any, ...]) -> Any:
    """The requests' pool with slots of states; how they are kept is set in the published settings."""
    import torch
    from sglang.srt.mem_cache.allocation_sizing import get_mamba_tracking_slots
    from sglang.srt.mem_cache.allocator.mamba import MambaSlotAllocator
    from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool, ReqToTokenPool
    from sglang.srt.runtime_context import get_exec, get_server_args

    extra, page, chunk = engine["extra_buffer"], engine["page_size"], engine["state_chunk"]
    for name, value in (
        ("enable_mamba_extra_buffer", extra), ("enable_mamba_extra_buffer_lazy", False),
        ("mamba_track_interval", engine["track_interval"]), ("mamba_max_states_per_path", -1),
    ):  # fmt: skip
        object.__setattr__(get_exec().mamba, name, value)
    get_server_args()._mamba_cache_chunk_size = max(chunk, page)
    config.hf_text_config.mamba_chunk_size = chunk
    torch.Tensor.pin_memory = lambda self, *_: self  # there is no device
    made = HybridReqToTokenPool.__new__(HybridReqToTokenPool)
    ReqToTokenPool.__init__(made, *shape)
    made.mamba_ping_pong_track_buffer_size = get_mamba_tracking_slots(
        extra_buffer=True, overlap=engine["overlap"]
    )
    made.mamba_initial_tracking_slots = get_mamba_tracking_slots(
        extra_buffer=extra, overlap=engine["overlap"]
    )
    made.enable_mamba_extra_buffer, made.enable_mamba_extra_buffer_lazy = extra, False
    made.mamba_allocator = MambaSlotAllocator(engine["state_slots"], "cpu")
    made.mamba_pool = SimpleNamespace(
        replayssm_write_pos=None, replayssm_spec_write_pos=None, size=engine["state_slots"],
        copy_from=lambda *_: None,
    )  # fmt: skip
    made.mamba_ckpt_pool = None
    size = made.req_to_token.shape[0]
    made.req_index_to_mamba_index_mapping = torch.zeros(size, dtype=torch.int32)
    made.req_index_to_mamba_ping_pong_track_buffer_mapping = torch.zeros(
        (size, made.mamba_ping_pong_track_buffer_size), dtype=torch.int64
    )
    return made


def _furnish(
    scheduler: Any, engine: dict[str, Any], config: Any, rows: Any, allocator: Any, tree: Any, told: list[Any]
) -> None:
    """What Scheduler.__init__ sets, without processes, devices or a model; its own methods where they need
    none of these."""
    from sglang.srt.disaggregation.utils import DisaggregationMode
    from sglang.srt.managers.schedule_policy import PrefillAdder
    from sglang.srt.managers.scheduler_components.batch_result_processor import SchedulerBatchResultProcessor
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    adder: Any = PrefillAdder

    class Told(adder):  # type: ignore[misc]
        """Keeps who was admitted and what the cache had."""

        def add_one_req(self, req: Any, *args: Any, **named: Any) -> Any:
            before = len(self.can_run_list)
            found = super().add_one_req(req, *args, **named)
            if len(self.can_run_list) > before:
                told.append((req, req.prefix_len))
            return found

    tokens = engine["pages"] * engine["page_size"]
    longest = min(engine["context_length"] - 1, tokens - 1)
    quiet = Quiet()
    known: dict[str, Any] = {
        "page_size": engine["page_size"], "req_to_token_pool": rows, "token_to_kv_pool_allocator": allocator,
        "tree_cache": tree, "model_config": config, "max_total_num_tokens": tokens, "kv_shard_widening": 1,
        "max_req_len": longest, "max_req_input_len": longest - 5, "max_new_tokens_limit": None,
        "sliding_window_size": engine.get("window"), "max_running_requests": engine["max_running_requests"],
        "max_prefill_tokens": engine["max_prefill_tokens"], "schedule_policy": engine["schedule_policy"],
        "enable_hierarchical_cache": False, "enable_hicache_storage": False, "enable_lmcache": False,
        "enable_unified_cache_external_linker": False, "enable_priority_scheduling": False,
        "schedule_low_priority_values_first": False, "priority_scheduling_preemption_threshold": 0,
        "enable_lora": False, "lora_drainer": None, "enable_hisparse": False, "hisparse_coordinator": None,
        "is_hybrid_swa": bool(engine.get("window")), "is_generation": True, "dllm_config": None,
        "dllm_manager": quiet,
        "require_mlp_sync": False, "enable_overlap": engine["overlap"], "decode_offload_manager": None,
        "spec_algorithm": SpeculativeAlgorithm.from_string(None), "min_free_slots_delayer": None,
        "truncation_align_size": None, "processed_tokens_counter": 0, "device": "cpu",
        "disaggregation_mode": DisaggregationMode.NULL, "enable_unified_memory": False,
        "rust_server": quiet, "metrics_collector": quiet, "enable_metrics": False,
        "max_queued_requests": None,
        "default_priority_value": None, "abort_on_priority_when_disabled": False,
        "dp_attn_adapter": Quiet(
            maybe_prepare_mlp_sync_batch=lambda batch, **_: batch,
            maybe_convert_decode_to_extend=lambda batch: batch,
        ),
        "ngram_embedding_manager": Quiet(prepare_for_forward=lambda batch, **_: batch),
        "grammar_manager": Quiet(has_waiting_grammars=lambda: False, grammar_queue=[]),
        "beam_coordinator": Quiet(pending_member_rows=lambda *_: 0, commit_decode=lambda *_: set()),
        "load_inquirer": Quiet(_get_num_pending_tokens=lambda **_: 0),
        "tp_worker": Quiet(
            model_runner=SimpleNamespace(attn_backend=object(), prefill_aware_swa=False, model_config=config)
        ),
        "metrics_reporter": Quiet(num_generated_tokens=0, forward_ct_decode=0, enable_metrics=False),
        "dynamic_chunk_sizer": None, "tokenizer": None, "scheduler_stage_metrics": None,
    }  # fmt: skip
    for name, value in known.items():
        setattr(scheduler, name, value)
    for method in ("init_chunked_prefill", "init_schedule_policy", "init_running_status"):
        getattr(scheduler, method)()
    scheduler.get_prefill_adder_class = lambda: Told
    scheduler.enable_skip_finishing_decode = engine["overlap"]
    scheduler.batch_result_processor = SchedulerBatchResultProcessor(
        is_generation=True, disaggregation_mode=DisaggregationMode.NULL, enable_overlap=engine["overlap"],
        enable_overlap_mlx=False, model_config=config, token_to_kv_pool_allocator=allocator, tree_cache=tree,
        hisparse_coordinator=None, req_to_token_pool=rows, decode_offload_manager=None,
        metrics_collector=quiet, metrics_reporter=scheduler.metrics_reporter, draft_worker=None,
        model_worker=object(), logprob_result_processor=quiet, output_streamer=quiet,
        beam_coordinator=scheduler.beam_coordinator, abort_request=lambda *_: None,
    )  # fmt: skip


class _Run:
    """One trace through one scheduler."""

    def __init__(self, oracle: Oracle, rows: list[Row], step: dict[str, int]) -> None:
        self.oracle, self.scheduler, self.rows, self.step = oracle, oracle.scheduler, rows, step
        self.columns = {name: [-1] * len(rows) for name in NAMES}
        self.columns |= {name: [0] * len(rows) for name in ("cached_again_tokens", "preemptions", "refused")}
        self.table: list[tuple[int, ...]] = []
        self.queue: deque[tuple[Any, int]] = deque()
        self.now = self.free_at = self.coming = 0
        self.retractions: dict[int, int] = {}
        self.live: dict[int, Any] = {}

    def run(self) -> dict[str, Any]:
        fruitless = 0
        scheduler, depth = self.scheduler, 2 if self.oracle.engine["overlap"] else 1
        while True:
            self._arrive()
            if not self.live and not self.queue:
                scheduler.new_token_ratio_tracker.reset()
                if self.coming >= len(self.rows):
                    break
                self.now = max(self.now, self.rows[self.coming]["at_ns"])
                continue
            batch = self._schedule()
            if batch is not None:
                fruitless = 0
                if len(self.queue) < depth:
                    continue
            elif not self.queue:
                fruitless += 1
                if fruitless > 100:
                    raise RuntimeError("a prompt waits for ever for room for its next chunk")
                if scheduler.running_batch.is_empty() and scheduler.chunked_req is None and self.live:
                    if self.coming >= len(self.rows):
                        raise RuntimeError("nothing can be scheduled and nothing more comes")
                    self.now = max(self.now, self.rows[self.coming]["at_ns"])
                continue
            self._end(*self.queue.popleft())
        lines = "".join(",".join(map(str, row)) + "\n" for row in self.table)
        return {
            "requests": self.columns,
            "steps": {
                "count": len(self.table), "sha256": hashlib.sha256(lines.encode()).hexdigest(),
                "first": self.table[:10], "every": max(1, len(self.table) // 20),
                "sampled": self.table[:: max(1, len(self.table) // 20)],
            },
        }  # fmt: skip

    def _arrive(self) -> None:
        scheduler = self.scheduler
        while self.coming < len(self.rows) and self.rows[self.coming]["at_ns"] <= self.now:
            row = self.rows[self.coming]
            if row["input"] >= scheduler.max_req_input_len:
                self.columns["refused"][self.coming] = 1
            else:
                made = self.oracle.request(self.coming, row)
                self.live[self.coming] = made
                scheduler._add_request_to_queue(made)
            self.coming += 1

    def _schedule(self) -> Any:
        scheduler, columns, told = self.scheduler, self.columns, self.oracle.admissions
        told.clear()
        before = {number: made.retraction_count for number, made in self.live.items()}
        scheduler.result_queue = deque((batch, None) for batch, _ in self.queue)
        plan = scheduler.get_next_batch_to_run(
            running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
        )
        scheduler.running_batch, batch = plan.running_batch, plan.batch_to_run
        scheduler.last_batch = batch
        starts = max(self.now, self.free_at)
        dropped = 0
        for number, made in list(self.live.items()):
            if made.retraction_count > before[number]:
                if made.to_finish is not None:
                    columns["refused"][number] = 1
                    del self.live[number]
                else:
                    columns["preemptions"][number] += 1
                    dropped += 1
        for made, hit in told:
            if columns["admitted_step"][made.number] < 0:
                columns["admitted_step"][made.number] = len(self.table)
                columns["admitted_ns"][made.number] = starts
                columns["cached_tokens"][made.number] = hit
            else:
                columns["cached_again_tokens"][made.number] += hit
        if batch is None:
            return None
        lengths = batch.seq_lens_cpu.tolist()
        tokens = batch.extend_num_tokens if batch.forward_mode.is_extend() else len(batch.reqs)
        context = sum(lengths)
        step = self.step
        ends = starts + step["fixed_ns"] + step["token_ns"] * tokens + step["context_ns"] * context
        self.free_at = ends
        self.table.append((
            starts, tokens, context, len(batch.reqs), len(scheduler.running_batch.reqs),
            len(scheduler.waiting_queue),
            scheduler.token_to_kv_pool_allocator.available_size() // self.oracle.engine["page_size"], dropped,
        ))  # fmt: skip
        batch.input_ids = None
        self.queue.append((batch.copy(), ends))
        return batch

    def _end(self, batch: Any, ends: int) -> None:
        import torch
        from sglang.srt.managers.utils import GenerationBatchResult

        self.now = ends
        tokens = [made.words[min(len(made.origin_input_ids) + len(made.output_ids), len(made.words) - 1)]
                  for made in batch.reqs]  # fmt: skip
        result = GenerationBatchResult(next_token_ids=torch.tensor(tokens, dtype=torch.int64))
        known = [(made, len(made.output_ids)) for made in batch.reqs]
        processor = self.scheduler.batch_result_processor
        if batch.forward_mode.is_decode():
            processor.process_batch_result_decode(batch, result)
        else:
            processor.process_batch_result_prefill(batch, result)
        for made, before in known:
            if len(made.output_ids) > before and self.columns["first_token_ns"][made.number] < 0:
                self.columns["first_token_ns"][made.number] = self.now
            if made.finished() and self.columns["finished_ns"][made.number] < 0:
                self.columns["finished_ns"][made.number] = self.now
                del self.live[made.number]


def answer(asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A scenario with SGLang's answer. Where its scheduler stops, an ``error``."""
    rows = rows_of(folder, asked["trace"])
    try:
        return asked | Oracle(asked["engine"], asked["trace"]["block_tokens"]).run(rows, asked["step"])
    except (AssertionError, RuntimeError, ValueError) as error:
        return asked | {"error": f"{type(error).__name__}: {error}"[:300]}


if __name__ == "__main__":
    record(__doc__, scenario, answer, lambda: {"sglang_version": "0.5.23"}, errors=True)
